"""The small language of conditions: text → a function of facts that says yes, no, or cannot tell.

    when = ["flags.hicache-size > 0", ["model.kind has mla", "model.family = glm-5"]]

All entries must hold; of an entry that is a list, one. Each is `GROUP.NAME OPERATOR [VALUE]`:

    set, unset          whether it is given at all (of flags and variables: written by the owner)
    = != < <= > >=      one value; the flag's default of that version counts where none is written
    in, not in          one of several, "|" between them
    has, lacks          the list holds it
    like                the text, or one of the list, matches a pattern of * and ?, case ignored

A fact that is missing makes a comparison undecidable (None), never false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from opsctl.engine.advisories.facts import GROUPS, KNOWN, Facts
from opsctl.engine.catalogue import catalogue, versions

Test = Callable[[Facts], bool | None]

_CLAUSE = re.compile(
    r"(?P<group>[a-z]+)\.(?P<name>[\w-]+)\s+"
    r"(?:(?P<bare>set|unset)|(?P<op>=|!=|<=|<|>=|>|in|not in|has|lacks|like)\s+(?P<value>.+))"
)
_MISSING = object()
_NUMERIC: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse(when: Sequence[str | Sequence[str]]) -> Test:
    """Raises ValueError with the text that is not understood."""
    every = [
        clause(entry) if isinstance(entry, str) else _any([clause(one) for one in entry])
        for entry in when
    ]

    def holds(facts: Facts) -> bool | None:
        known = True
        for test in every:
            found = test(facts)
            if found is False:
                return False
            known = known and found is not None
        return True if known else None

    return holds


def _any(tests: Sequence[Test]) -> Test:
    def holds(facts: Facts) -> bool | None:
        known = True
        for test in tests:
            found = test(facts)
            if found:
                return True
            known = known and found is not None
        return False if known else None

    return holds


def clause(text: str) -> Test:
    """One test. ValueError if its form, its group or its fact is not known."""
    match = _CLAUSE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not GROUP.NAME OPERATOR [VALUE]")
    group, name = match["group"], match["name"]
    if group not in GROUPS:
        raise ValueError(f"{text!r}: no group {group}; there are {', '.join(GROUPS)}")
    if group in KNOWN and name not in KNOWN[group]:
        raise ValueError(f"{text!r}: {group} has no {name}; it has {', '.join(KNOWN[group])}")
    if match["bare"]:
        return _is_set(group, name, match["bare"] == "set")
    return _compared(group, name, _judge(match["op"], match["value"].strip()))


def _is_set(group: str, name: str, wanted: bool) -> Test:
    """A flag or variable is there or not; of any other fact, absence means that nobody knows."""
    if group in ("flags", "env"):
        return lambda facts: (name in getattr(facts, group)) is wanted
    return lambda facts: wanted if name in getattr(facts, group) else None


def _compared(group: str, name: str, judge: Callable[[Any], bool]) -> Test:
    def holds(facts: Facts) -> bool | None:
        value = getattr(facts, group).get(name, _MISSING)
        if value is _MISSING and group == "flags":
            value = default(facts.version, name)
        if value is _MISSING and group == "env":
            value = None  # what is not in the unit is not in the engine's environment
        return None if value is _MISSING else judge(value)

    return holds


@cache
def default(version: str, name: str) -> Any:
    """What the engine takes where the flag is not written; None: it decides later, or has no such
    flag; _MISSING: there is no catalogue of this version."""
    if version not in _catalogued():
        return _MISSING
    flag = catalogue(version).flags.get(name)
    if flag is not None and flag.kind in ("switch", "onoff") and flag.default is None:
        return False
    return flag.default if flag else None


@cache
def _catalogued() -> frozenset[str]:
    return frozenset(versions())


def _judge(op: str, text: str) -> Callable[[Any], bool]:
    if op in _NUMERIC:
        edge, compare = float(text), _NUMERIC[op]
        return lambda value: _number(value) is not None and compare(_number(value), edge)
    if op in ("in", "not in"):
        choices = [scalar(part.strip()) for part in text.split("|")]
        return lambda value: any(_same(value, one) for one in choices) is (op == "in")
    if op in ("has", "lacks"):
        return lambda value: (text in _items(value)) is (op == "has")
    if op == "like":
        pattern = text.lower()
        return lambda value: any(fnmatchcase(str(v).lower(), pattern) for v in _items(value))
    wanted = scalar(text)
    return lambda value: _same(value, wanted) is (op == "=")


def scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    number = _number(text)
    return text if number is None else number


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _same(value: Any, wanted: Any) -> bool:
    """ "1" of an environment variable is the number 1; "true" is not the truth value's business."""
    if isinstance(wanted, bool):
        return value is wanted or (isinstance(value, str) and value.lower() == str(wanted).lower())
    if isinstance(wanted, float):
        return _number(value) == wanted
    return bool(value == wanted)


def _items(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value]
    return value


def named(when: Sequence[str | Sequence[str]]) -> Mapping[str, set[str]]:
    """Names that a condition asks for, by group."""
    found: dict[str, set[str]] = {}
    for entry in when:
        for text in [entry] if isinstance(entry, str) else entry:
            group, name = text.split()[0].split(".", 1)
            found.setdefault(group, set()).add(name)
    return found
