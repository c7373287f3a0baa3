"""From what an owner wrote to the value that the engine's parser will hold, and to its text.

Typed once, here: 4, 4.0 and "4.0" are one value of a float flag, so that they are one release.
On purpose stricter than the parser in what reads like a slip: NaN and infinities, digits that are
not ASCII, digits grouped by "_", blanks around a number, a JSON value that is neither a mapping
nor a list, and text that the parser itself would lose or mistake (a lone "--", a list item that
begins with a dash).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from opsctl.engine.flag import JSON_KINDS, Flag
from opsctl.engine.jsonvalues import canonical, graph_config, json_list, json_value, lora, of_form
from opsctl.engine.numbers import real, size, whole
from opsctl.engine.refused import Refused, worded

# argparse takes an item that starts with a dash for an option, except a dash alone and a plain
# negative number.
_NEGATIVE = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")


def typed(flag: Flag, value: Any) -> Any:
    """The value in its type. Raises Refused. A switch gives a bool, a list flag a list."""
    if value is None:
        raise Refused("has no value", hint="leave the flag out to unset it")
    if flag.kind == "refused":
        instead = f"use {flag.deprecated}" if flag.deprecated else ""
        raise Refused("is known to the engine only to be refused", hint=instead)
    if flag.kind in ("switch", "void", "onoff"):
        return _switch(value)
    if flag.nargs == "?" and isinstance(value, bool):
        return value
    try:
        return _many(flag, value) if flag.many else _single(flag, value)
    except RecursionError:
        raise Refused("is nested too deeply") from None


def _single(flag: Flag, value: Any) -> Any:
    found = _one(flag, value)
    _not_lost(text(flag, found))
    return found


def _not_lost(shown: str) -> None:
    if shown == "--":
        raise Refused("the engine's parser drops a value of two dashes")


def text(flag: Flag, value: Any) -> str:
    """One typed value as the engine's command line has it, the same text for the same value."""
    if flag.kind == "float":
        shown = repr(float(value))
        # argparse knows a negative number by its digits alone: with an exponent it is an option.
        return format(Decimal(shown), "f") if shown.startswith("-") else shown
    if flag.kind in JSON_KINDS or isinstance(value, dict):
        return canonical(value)
    return str(value)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise Refused("takes no value", allowed="true, false")


def _many(flag: Flag, value: Any) -> list[Any]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items and flag.nargs == "+":
        raise Refused("needs at least one value")
    found = []
    for item in items:
        try:
            one = _one(flag, item)
        except Refused as refused:
            if isinstance(item, str) and re.search(r"[\s,]", item) and not refused.hint:
                words = ", ".join(re.split(r"[\s,]+", item.strip(" ,[]")))
                refused.hint = f"write it as a list: [{words}]"
            raise
        shown = text(flag, one)
        _not_lost(shown)
        if shown.startswith("-") and shown != "-" and not _NEGATIVE.fullmatch(shown):
            raise Refused(f"the engine's parser takes {shown!r} for an option, not for a value")
        found.append(one)
    return found


def _one(flag: Flag, value: Any) -> Any:
    form = flag.form
    found = _READERS[flag.kind](value) if form is None else of_form(form, flag.kind, value)
    if flag.choices and found not in flag.choices:
        shown = [str(c) for c in flag.choices]
        near = get_close_matches(str(found), shown, n=1, cutoff=0.6)
        raise Refused(
            "is not one of its values",
            allowed=", ".join(shown),
            hint=f"did you mean {near[0]}?" if near else "",
        )
    return found


def _nullable(value: Any) -> str:
    found = worded(value)
    if found in ("", "None"):
        raise Refused("means unset to the engine", hint="leave the flag out")
    return found


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": whole,
    "float": real,
    "size": size,
    "text": worded,
    "nullable": _nullable,
    "json": json_value,
    "json_list": json_list,
    "graph_config": graph_config,
    "lora": lora,
}
