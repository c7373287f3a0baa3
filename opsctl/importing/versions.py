"""Which version of the engine a text speaks of, or which ones take all of its flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opsctl import engine
from opsctl.engine import order
from opsctl.engine.values import Refused
from opsctl.importing.arguments import walk
from opsctl.importing.marks import whole
from opsctl.importing.values import read

_WITHIN = re.compile(r"(?<![0-9.])v?([0-9]+\.[0-9]+\.[0-9]+(?:\.?post[0-9]+|rc[0-9]+)?)(?![0-9.])")


def named(texts: Iterable[str]) -> tuple[str, str] | None:
    """(version, the text that names it): a path of an environment, an image's tag. Only a version
    that there is a catalogue of, or that at least numbers releases as SGLang does (0.x.y)."""
    for text in texts:
        for match in _WITHIN.finditer(text):
            version = match[1].replace("post", ".post").replace("..", ".")
            if version in engine.versions() or version.startswith("0."):
                return version, text
    return None


def fitting(args: Sequence[str]) -> list[str]:
    """The versions whose parser takes this command line as far as its values are known."""
    return [version for version in engine.versions() if _takes(version, args)]


def _takes(version: str, args: Sequence[str]) -> bool:
    given, strays = walk(engine.catalogue(version), args)
    if any(whole(stray.written) for stray in strays):
        return False
    for one in given:
        if one.flag.kind == "refused":
            return False
        try:
            if all(whole(value) for value in one.values):
                read(one)
        except Refused:
            return False
    return True


def said(some: Sequence[str]) -> str:
    return order.said(some, engine.versions())
