"""data/*.toml → entries, each checked: a key that is not known is an error, not an omission."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from opsctl.engine.advisories import condition
from opsctl.engine.advisories.versions import Range
from opsctl.engine.advisories.versions import parse as span

SEVERITIES = ("critical", "warn", "info")
# key → (type, whether it must be there). What each means is told at the top of docs/advisories.md.
KEYS: dict[str, tuple[type, bool]] = {
    "id": (str, True),
    "severity": (str, True),
    "versions": (list, True),
    "when": (list, True),
    "unknown": (str, False),
    "symptom": (str, True),
    "text": (str, True),
    "advice": (str, True),
    "reference": (list, True),
    "evidence": (str, True),
    "speaks": (list, True),
    "silent": (list, True),
}


@dataclass(frozen=True)
class Entry:
    """One advisory as it stands in the data. `speaks`, `silent`: its test cases."""

    id: str
    theme: str
    severity: str
    versions: tuple[str, ...]
    ranges: tuple[Range, ...]
    when: tuple[Any, ...]
    holds: condition.Test = field(compare=False)
    unknown: str
    symptom: str
    text: str
    advice: str
    reference: tuple[str, ...]
    evidence: str
    speaks: tuple[Any, ...] = field(compare=False)
    silent: tuple[Any, ...] = field(compare=False)

    def __hash__(self) -> int:
        return hash(self.id)


@cache
def entries() -> tuple[Entry, ...]:
    """All of them, by theme. Raises ValueError naming file, entry and key of what is wrong."""
    found: dict[str, Entry] = {}
    folder = files("opsctl.engine.advisories").joinpath("data")
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".toml"):
            continue
        theme = file.name.removesuffix(".toml")
        for one in parse(file.read_text("utf-8"), theme):
            if one.id in found:
                raise ValueError(f"{file.name}: {one.id} stands in {found[one.id].theme} too")
            found[one.id] = one
    return tuple(found.values())


def parse(text: str, theme: str) -> list[Entry]:
    document = tomllib.loads(text)
    if extra := sorted(set(document) - {"advisory"}):
        raise ValueError(f"{theme}: unknown key {extra[0]}")
    return [_entry(raw, theme) for raw in document.get("advisory", ())]


def _entry(raw: Mapping[str, Any], theme: str) -> Entry:
    where = f"{theme}, {raw.get('id', 'an entry without id')}"
    if extra := sorted(set(raw) - set(KEYS)):
        raise ValueError(f"{where}: unknown key {extra[0]}; known are {', '.join(KEYS)}")
    for name, (kind, needed) in KEYS.items():
        if needed and not raw.get(name):
            raise ValueError(f"{where}: {name} is missing")
        if name in raw and not isinstance(raw[name], kind):
            raise ValueError(f"{where}: {name} must be a {kind.__name__}")
    if raw["severity"] not in SEVERITIES:
        raise ValueError(f"{where}: severity is one of {', '.join(SEVERITIES)}")
    if raw.get("unknown", "silent") not in ("silent", "speak"):
        raise ValueError(f"{where}: unknown is silent or speak")
    try:
        ranges = tuple(span(one) for one in raw["versions"])
        holds = condition.parse(raw["when"])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return Entry(
        id=raw["id"],
        theme=theme,
        severity=raw["severity"],
        versions=tuple(raw["versions"]),
        ranges=ranges,
        when=tuple(raw["when"]),
        holds=holds,
        unknown=raw.get("unknown", "silent"),
        symptom=raw["symptom"],
        text=raw["text"],
        advice=raw["advice"],
        reference=tuple(raw["reference"]),
        evidence=raw["evidence"],
        speaks=tuple(raw["speaks"]),
        silent=tuple(raw["silent"]),
    )
