"""What a flag was from release to release, runs of releases that agree taken together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from opsctl.engine import store
from opsctl.engine.flag import Flag, from_data


@dataclass(frozen=True)
class Span:
    """Releases in a row in which the flag is the same, first and last; `flag` None: in which there
    is none. `gone`, `new`: choices that the span before had, or had not."""

    first: str
    last: str
    flag: Flag | None
    gone: tuple[Any, ...] = ()
    new: tuple[Any, ...] = ()


def history(name: str) -> list[Span]:
    """Of a flag by its canonical name, oldest first. Empty: no release has it."""
    versions = list(store.where())
    found = list(_spans([(version, _flag(name, version)) for version in versions]))
    return found if any(span.flag for span in found) else []


def _flag(name: str, version: str) -> Flag | None:
    entry = store.table(version).get(name)
    return None if entry is None else from_data(name, entry, version)


def _spans(each: list[tuple[str, Flag | None]]) -> Iterator[Span]:
    before: Flag | None = None
    for _, run in groupby(each, key=lambda one: _same(one[1])):
        members = list(run)
        flag = members[-1][1]
        was, now = (set(f.choices) if f else set() for f in (before, flag))
        both = before is not None and flag is not None
        yield Span(
            members[0][0],
            members[-1][0],
            flag,
            tuple(c for c in before.choices if c not in now) if before and both else (),
            tuple(c for c in flag.choices if c not in was) if flag and both else (),
        )
        before = flag


def _same(flag: Flag | None) -> Any:
    """What makes two releases alike. Choices in another order are the same choices."""
    if flag is None:
        return None
    choices = sorted(map(str, flag.choices))
    return (flag.kind, flag.nargs, flag.names, repr(flag.default), repr(flag.fallback), choices,
            flag.deprecated)  # fmt: skip
