"""From what an owner wrote to the value that the engine's parser will hold, and to its text.

Typed once, here: 4, 4.0 and "4.0" are one value of a float flag, so that they are one release.
On purpose stricter than the parser in what reads like a slip: NaN and infinities, digits that are
not ASCII, digits grouped by "_", blanks around a number, a JSON value that is neither a mapping
nor a list, and text that the parser itself would lose or mistake (a lone "--", a list item that
begins with a dash).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

from opsctl.engine.flag import JSON_KINDS, Flag

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SIZE = re.compile(r"([0-9]+)(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)")
_UNIT = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNIT |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# argparse takes an item that starts with a dash for an option, except a dash alone and a plain
# negative number.
_NEGATIVE = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")
_PHASES = ("decode", "prefill")
_PHASE_KEYS = {
    "decode": ("backend", "max_bs", "bs"),
    "prefill": (
        *("backend", "max_bs", "bs", "max_context_size", "full_prefill_max_req"),
        *("full_prefill_prefix_chunk_tokens", "max_seq_len"),
    ),
}
_MOST_DIGITS = 400  # far beyond any real figure; Python itself refuses to read more than 4300


class Refused(ValueError):
    """A value that the flag does not take."""

    def __init__(self, message: str, *, allowed: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.allowed = allowed
        self.hint = hint


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
        return repr(float(value))
    if flag.kind in JSON_KINDS or isinstance(value, dict):
        return canonical_json(value)
    return str(value)


def canonical_json(value: Any) -> str:
    """Compact, keys sorted, ASCII only: the same for the same value, whatever the locale."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


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
    found = _READERS[flag.kind](value)
    if flag.choices and found not in flag.choices:
        shown = [str(c) for c in flag.choices]
        near = get_close_matches(str(found), shown, n=1, cutoff=0.6)
        raise Refused(
            "is not one of its values",
            allowed=", ".join(shown),
            hint=f"did you mean {near[0]}?" if near else "",
        )
    return found


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 10**_MOST_DIGITS:
            raise Refused("is too large a number")
        return int(value)
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and _INT.fullmatch(value):
        return int(value)
    hint = ""
    if isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}"
    raise Refused("must be a whole number", hint=hint)


def _size(value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        try:
            return _int(value)
        except Refused as refused:
            refused.allowed = "a whole number, or one with k, M, G, T (10^3 …) or Ki, Mi, Gi, Ti"
            raise
    whole, fraction, unit = match.groups()
    if fraction and unit.endswith("i"):
        raise Refused(f"takes no fraction before {unit}")
    return int(Decimal(whole + (fraction or "")) * _UNIT[unit])


def _float(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number and not (isinstance(value, str) and _FLOAT.fullmatch(value)):
        raise Refused("must be a number")
    try:
        found = float(value)
    except (OverflowError, ValueError):
        found = math.inf
    if not math.isfinite(found):
        raise Refused("must be a finite number")
    return found


def clean(value: str) -> str:
    """Text that can be an argument of a process. Raises Refused."""
    if "\0" in value:
        raise Refused("holds a NUL character, which no argument can")
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise Refused("holds half a surrogate pair, which is not text")
    return str.__str__(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool):
        said = "on/yes/true" if value else "off/no/false"
        raise Refused("must be text", hint=f'a bare {said} is a truth value in YAML: quote it "…"')
    if isinstance(value, int | float):
        raise Refused("must be text", hint=f'quote it: "{value}"')
    raise Refused("must be text")


def _nullable(value: Any) -> str:
    found = _text(value)
    if found in ("", "None"):
        raise Refused("means unset to the engine", hint="leave the flag out")
    return found


def _json(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise Refused(
                f"is not JSON: {error}", hint="a YAML mapping or list is taken as it is"
            ) from None
    if not isinstance(value, Mapping | list | tuple):
        raise Refused("must be a mapping or a list")
    return plain(value)


def plain(value: Any) -> Any:
    """A JSON value of plain types, checked all the way down. Raises Refused."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise Refused("holds a whole number of more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Refused("holds NaN or an infinity, which JSON has not")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise Refused(f"has the key {wrong[0]!r}, which is not text", hint="quote the key")
        return {clean(key): plain(item) for key, item in value.items()}
    raise Refused(f"holds a {type(value).__name__}, which JSON has not")


def _json_list(value: Any) -> list[Any]:
    found = _json(value)
    if not isinstance(found, list):
        raise Refused("must be a list")
    return found


def _json_text(value: Any) -> str:
    return canonical_json(plain(value)) if isinstance(value, Mapping | list) else _text(value)


def _graph_config(value: Any) -> dict[str, Any]:
    found = _json(value)
    if not isinstance(found, dict):
        raise Refused("must be a mapping", allowed=", ".join(_PHASES))
    for phase, settings in found.items():
        if phase not in _PHASES:
            raise Refused(f"has the phase {phase!r}", allowed=", ".join(_PHASES))
        keys = _PHASE_KEYS[phase]
        if not isinstance(settings, dict) or any(key not in keys for key in settings):
            raise Refused(f"{phase} must be a mapping of known settings", allowed=", ".join(keys))
        if settings.get("backend") == "tc_piecewise":
            raise Refused(f"{phase}: tc_piecewise was removed", allowed="breakable, full, disabled")
    return found


def _lora(value: Any) -> Any:
    if isinstance(value, str):
        found = _text(value).strip()
        if not (found.startswith("{") and found.endswith("}")):
            return found
        value = _json(found)
    if not isinstance(value, Mapping):
        raise Refused("must be a path, NAME=PATH, or a mapping")
    found = plain(value)
    if not {"lora_name", "lora_path"} <= set(found):
        raise Refused("lacks lora_name or lora_path", allowed="lora_name, lora_path, pinned")
    return found


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "size": _size,
    "text": _text,
    "nullable": _nullable,
    "json": _json,
    "json_list": _json_list,
    "json_text": _json_text,
    "graph_config": _graph_config,
    "lora": _lora,
}
