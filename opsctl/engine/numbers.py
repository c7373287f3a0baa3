"""Numbers as an owner writes them → as the engine's parser will hold them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from opsctl.engine.refused import Refused

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SIZE = re.compile(r"([0-9]+)(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)")
_UNIT = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNIT |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_MOST_DIGITS = 400  # far beyond any real figure; Python itself refuses to read more than 4300


def whole(value: Any) -> int:
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


def size(value: Any) -> int:
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        try:
            return whole(value)
        except Refused as refused:
            refused.allowed = "a whole number, or one with k, M, G, T (10^3 …) or Ki, Mi, Gi, Ti"
            raise
    before, fraction, unit = match.groups()
    if fraction and unit.endswith("i"):
        raise Refused(f"takes no fraction before {unit}")
    return int(Decimal(before + (fraction or "")) * _UNIT[unit])


def real(value: Any) -> float:
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
