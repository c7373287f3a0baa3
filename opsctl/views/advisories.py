"""What is known to go wrong with a service, for a terminal and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opsctl.engine.advisories import Advisory
from opsctl.remote.sanitise import text as harmless

_MARKS = {"critical": ("!", "bold red"), "warn": ("!", "yellow"), "info": ("i", "cyan")}


def lines(advisories: Iterable[Advisory], mark: str = "") -> Iterator[tuple[str, str]]:
    """(text, style): two lines an advisory, what is wrong and what to type. `mark`: a word more
    about all of them."""
    told = f" ({mark})" if mark else ""
    for one in advisories:
        sign, style = _MARKS[one.severity]
        doubt = "" if one.certain else " (if it applies: a fact is missing that decides)"
        yield f"{sign} {one.severity} {one.id}{told}: {harmless(one.text)}{doubt}", style
        yield f"  → {harmless(one.advice)}", ""


def entries(advisories: Iterable[Advisory]) -> list[dict[str, Any]]:
    return [one.as_json() for one in advisories]
