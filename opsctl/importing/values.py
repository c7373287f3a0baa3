"""Texts of a command line → typed values, as the engine itself would read them.

The catalogue is stricter than the engine on purpose (blanks around a number, 1_0): what a running
command line says is read as the engine reads it, and the description then says it plainly.
"""

from __future__ import annotations

import json
import math
from typing import Any

from opsctl.engine.jsonvalues import plain
from opsctl.engine.values import typed
from opsctl.importing.arguments import Given

UNSET = object()  # what the engine takes for no value at all


def read(given: Given) -> Any:
    """The typed value; UNSET if the engine treats it as if the option were not there. Raises
    Refused: the engine itself would not take it, or opsctl does not."""
    flag = given.flag
    if flag.kind == "void":
        return UNSET
    if flag.kind in ("switch", "onoff"):
        return given.how != "negative"
    if flag.kind == "nullable" and not flag.many and given.values in (("",), ("None",)):
        return UNSET
    if flag.form is not None and flag.form.unset and given.values == ("",):
        return UNSET
    if flag.nargs == "?" and not given.values:
        return True
    if flag.many:
        return typed(flag, [_number(flag.kind, text) for text in given.values])
    if flag.kind == "json_text" and (found := as_json(given.values[0])) is not None:
        return typed(flag, found)
    return typed(flag, _number(flag.kind, given.values[0]))


def as_json(text: str) -> Any:
    """A mapping or list that a text holds; None if it holds something else. Blanks and the order
    of keys in it are nothing to the engine."""
    try:
        found = json.loads(text)
        return plain(found) if isinstance(found, dict | list) else None
    except (ValueError, RecursionError):
        return None


def _number(kind: str, text: str) -> Any:
    """What Python's own int() and float() make of it, which are the parser's types."""
    try:
        if kind == "int" and len(text) < 400:
            return int(text)
        if kind == "float" and math.isfinite(number := float(text)):
            return number
    except ValueError:
        pass
    return text
