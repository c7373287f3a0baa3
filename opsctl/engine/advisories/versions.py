"""Versions of SGLang in their right order, and ranges of them. Pure.

Post releases come after the release that they mend, development versions and candidates before it:
0.5.3rc0 < 0.5.3 < 0.5.3.post1 < 0.5.4. A local part ("+cu130") changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_VERSION = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:\.?(dev|a|b|rc)\d*)?(?:\.post(\d+))?(?:\.dev\d+)?(?:\+.*)?"
)
_BOUND = re.compile(r"(>=|<=|>|<|==)\s*(\S+)")

Key = tuple[int, int, int, int]


@cache
def key(version: str) -> Key:
    """What versions are ordered by. ValueError for text that is no version."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    numbers = [int(part) for part in match[1].split(".")]
    if len(numbers) > 3:
        raise ValueError(f"{version!r} has more than three numbers")
    major, minor, micro = (*numbers, 0, 0)[:3]
    return major, minor, micro, -1 if match[2] else int(match[3] or 0)


@dataclass(frozen=True)
class Range:
    """All versions that every bound allows. `bounds`: (operator, version) as written."""

    bounds: tuple[tuple[str, str], ...]

    def holds(self, version: str) -> bool:
        return all(_allows(operator, key(version), key(edge)) for operator, edge in self.bounds)


def parse(text: str) -> Range:
    """ ">=0.5.3,<=0.5.16" → Range. ValueError for anything else; "" is no range."""
    bounds = []
    for part in text.split(","):
        match = _BOUND.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not a bound such as >=0.5.3")
        key(match[2])
        bounds.append((match[1], match[2]))
    return Range(tuple(bounds))


def _allows(operator: str, version: Key, edge: Key) -> bool:
    if operator == ">=":
        return version >= edge
    if operator == "<=":
        return version <= edge
    if operator == ">":
        return version > edge
    if operator == "<":
        return version < edge
    return version == edge
