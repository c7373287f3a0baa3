"""Under which values of a flag something may have been measured that a question knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from opsctl.errors import SpecError
from opsctl.forecast.question import Question, described


def values(question: Question, flag: str, sets: Sequence[str] = ()) -> frozenset[Any]:
    """As described with `sets`, as it is written, and of each start that is known; None is unset.
    A start whose record has no flags is not among them."""
    manifest = question.asked(sets).manifest
    found = {manifest["flags"].get(flag), *_written(question, flag)}
    found |= {_flags(start).get(flag) for start in question.facts.get("starts") or ()}
    if question.journal:
        from opsctl.forecast.journalled import flags_of

        named = {**manifest, "flags": {flag: None, **manifest["flags"]}}
        found.add(flags_of(question.journal, named).get(flag))
    return frozenset(value for value in found if value is None or isinstance(value, int | float))


def _written(question: Question, flag: str) -> Iterator[Any]:
    for entry, sets in (
        (question.entry, ()),
        (question.entry, question.sets),
        (question.base, ()),
    ):
        if entry is not None:
            with suppress(SpecError):  # it may be no description alone
                yield described(question.name, entry, sets).flags.get(flag)


def _flags(start: Mapping[str, Any]) -> Mapping[str, Any]:
    flags = start.get("flags")
    return flags if isinstance(flags, Mapping) else {}
