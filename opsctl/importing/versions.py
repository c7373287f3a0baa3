"""Which version of the engine a text speaks of, or which ones take all of its flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opsctl import engine
from opsctl.engine import order
from opsctl.engine.refused import Refused
from opsctl.importing.arguments import walk
from opsctl.importing.marks import whole
from opsctl.importing.values import read

_WITHIN = re.compile(
    r"(?<![0-9.])v?([0-9]+\.[0-9]+\.[0-9]+(?:\.?post[0-9]+|rc[0-9]+)?)(?![0-9]|\.[0-9])"
)


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


def nearest(args: Sequence[str]) -> str:
    """The version that refuses least of it, the newest of several."""
    return min(reversed(engine.versions()), key=lambda version: _wrong(version, args))


def _takes(version: str, args: Sequence[str]) -> bool:
    return _wrong(version, args) == 0


def _wrong(version: str, args: Sequence[str]) -> int:
    """How many arguments this version's parser does not take, as far as they are known."""
    given, strays = walk(engine.catalogue(version), args)
    wrong = sum(whole(stray.written) for stray in strays)
    for one in given:
        try:
            if all(whole(value) for value in one.values):
                wrong += one.flag.kind == "refused"
                read(one)
        except Refused:
            wrong += 1
    return wrong


def said(some: Sequence[str]) -> str:
    return order.said(some, engine.versions())
