"""One host's description: the group's services with the host's own changes laid over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Below these keys stand values, not parts of a description: a flag's mapping is one JSON value.
OPAQUE = ("flags",)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `base`: mappings are merged deep, all else is replaced, null deletes.

    A null in `base` counts as not written. A flag's value is one value, whatever its kind.
    """
    merged: dict[str, Any] = {}
    for key in [*base, *(key for key in changes if key not in base)]:
        value = _over(key, base.get(key), changes[key]) if key in changes else base[key]
        if value is not None:
            merged[key] = _tidy(key, value)
    return merged


def _over(key: str, old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **new} if key in OPAQUE else merge(old, new)


def _tidy(key: str, value: Any) -> Any:
    """Without nulls in whatever came from one side only."""
    if not isinstance(value, Mapping):
        return value
    if key in OPAQUE:
        return {name: part for name, part in value.items() if part is not None}
    return merge(value, {})
