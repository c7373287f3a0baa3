"""data/*.toml: what a flag does, what it costs in memory. Written by us, not by the engine.

[NAME]
text = what it does, and what to think of before it is set
gpu  = what it costs in GPU memory, by the names that `opsctl forecast -o json` uses
host = what it costs in RAM
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_KEYS = {"text", "gpu", "host"}


@dataclass(frozen=True)
class Text:
    """`gpu`, `host`: "" where it costs no memory worth a word."""

    theme: str
    text: str
    gpu: str = ""
    host: str = ""


def text(name: str) -> Text | None:
    """Of a flag by its canonical name; None: we have not written one."""
    return texts().get(name)


@cache
def texts() -> Mapping[str, Text]:
    """All of them, by canonical name. Raises ValueError: what is wrong in which file."""
    found: dict[str, Text] = {}
    folder = files("opsctl.engine.explain").joinpath("data")
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if not file.name.endswith(".toml"):
            continue
        theme = file.name.removesuffix(".toml")
        for name, entry in tomllib.loads(file.read_text("utf-8")).items():
            if name in found or not entry.get("text") or set(entry) - _KEYS:
                raise ValueError(f"{file.name}: {name} stands twice, lacks its text, or has more")
            found[name] = Text(theme, **entry)
    return found
