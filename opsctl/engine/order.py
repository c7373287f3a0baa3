"""Versions of SGLang in order, and how several of them are said in few words."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

_PART = re.compile(r"(dev|a|b|rc|post)?([0-9]+)")
_RANK = {"dev": -4, "a": -3, "b": -2, "rc": -1, "post": 1, None: 2}
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+((a|b|rc|\.dev|\.post)[0-9]+)*(\+[a-z0-9.]+)?")


@cache
def age(version: str) -> tuple[tuple[tuple[int, int], ...], str]:
    """Sorts as releases followed each other: 0.5.10rc0, 0.5.10, 0.5.10.post1, 0.5.11."""
    public, _, local = version.partition("+")
    parts = [(_RANK[m[1]], int(m[2])) for m in _PART.finditer(public)]
    return (*parts, (0, 0)), local


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def said(some: Collection[str], known: Sequence[str]) -> str:
    """`some` of the `known` versions (in order), runs shortened: "0.5.2, 0.5.9 to 0.5.23"."""
    runs: list[list[str]] = []
    broken = True
    for version in known:
        if version not in some:
            broken = True
        elif broken:
            runs.append([version])
            broken = False
        else:
            runs[-1].append(version)
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def nearest(version: str, known: Sequence[str], count: int = 3) -> list[str]:
    """The known versions next to one that is not, in order."""
    if not is_version(version):
        return list(known[-count:])
    at = sum(age(one) < age(version) for one in known)
    first = max(0, min(at - count // 2 - count % 2, len(known) - count))
    return list(known[first : first + count])
