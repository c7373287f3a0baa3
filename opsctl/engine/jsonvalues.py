"""JSON as an owner writes it, text or YAML → plain values, and their one text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from opsctl.engine.jsonforms import Form
from opsctl.engine.refused import Refused, clean, worded

_PHASES = ("decode", "prefill")
_PHASE_KEYS = {
    "decode": ("backend", "max_bs", "bs"),
    "prefill": (
        *("backend", "max_bs", "bs", "max_context_size", "full_prefill_max_req"),
        *("full_prefill_prefix_chunk_tokens", "max_seq_len"),
    ),
}


def canonical(value: Any) -> str:
    """Compact, keys sorted, ASCII only: the same for the same value, whatever the locale."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def json_value(value: Any) -> Any:
    """A mapping or list, from its text too. Raises Refused."""
    found = parsed(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping | list | tuple):
        raise Refused("must be a mapping or a list")
    return plain(found)


def parsed(text: str) -> Any:
    """Raises Refused."""
    try:
        return json.loads(text)
    except ValueError as error:
        quotes = "JSON takes double quotes alone; " if "'" in text and '"' not in text else ""
        raise Refused(
            f"is not JSON: {error}", hint=f"{quotes}a YAML mapping or list is taken as it is"
        ) from None


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


def json_list(value: Any) -> list[Any]:
    found = json_value(value)
    if not isinstance(found, list):
        raise Refused("must be a list")
    return found


def of_form(form: Form, kind: str, value: Any) -> Any:
    """A mapping, or what the engine takes in its place (`form`). Text that the engine's parser
    takes as text (kind json_text) stays as it was written. Raises Refused."""
    if kind != "json_text":
        return _mapping(form, json_value(value))
    if isinstance(value, Mapping | list | tuple):
        return canonical(_mapping(form, value))
    found = worded(value)
    bare = found.strip()
    if not found and form.unset:
        raise Refused("means unset to the engine", hint="leave the flag out")
    if form.stands_for(bare):
        return found
    try:
        _mapping(form, parsed(bare))
    except Refused as refused:
        refused.allowed = refused.allowed or form.allowed
        raise
    return found


def _mapping(form: Form, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused("must be a mapping", allowed=form.allowed)
    found: dict[str, Any] = plain(value)
    if wrong := form.judge(found):
        raise Refused(wrong, allowed=form.allowed)
    return found


def graph_config(value: Any) -> dict[str, Any]:
    found = json_value(value)
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


def lora(value: Any) -> Any:
    if isinstance(value, str):
        found = worded(value).strip()
        if not (found.startswith("{") and found.endswith("}")):
            return found
        value = json_value(found)
    if not isinstance(value, Mapping):
        raise Refused("must be a path, NAME=PATH, or a mapping")
    found = plain(value)
    if not {"lora_name", "lora_path"} <= set(found):
        raise Refused("lacks lora_name or lora_path", allowed="lora_name, lora_path, pinned")
    return found
