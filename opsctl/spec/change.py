"""`--set KEY=VALUE`: what an owner would write differently, as changes over the description.

A key of the description may be dotted (`memory.min_available`, `env.X`, `flags.hicache-ratio`); a
name that is no part of a description is a flag of the engine. `null` deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from opsctl.errors import Problem, SpecError
from opsctl.spec.merge import OPAQUE, merge
from opsctl.spec.models import Service

# Below these everything is text, whatever it looks like: FLAG=1 is "1", 0.5 is a version.
TEXTUAL = ("env", "secrets", "engine", "model")


def changed(written: Mapping[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """The description `written` with each KEY=VALUE over it, the last one winning.

    Raises SpecError for what has no "=" or no key; names and values are judged by `spec.check`.
    """
    result = dict(written)
    for one in sets:
        path, value = parsed(one)
        part: Any = value
        for name in reversed(path):
            part = {name: part}
        result = merge(result, part) if value is not None else _without(result, path)
    return result


def parsed(text: str) -> tuple[list[str], Any]:
    """ "hicache-ratio=3" → (["flags", "hicache-ratio"], 3)."""
    key, equals, said = text.partition("=")
    key = key.strip().removeprefix("--")
    if not equals or not key or "" in key.split("."):
        raise SpecError(
            [
                Problem(
                    "is not KEY=VALUE",
                    key="--set",
                    value=text,
                    allowed="a flag, or a dotted key of the description, then = and its value",
                    hint="for example hicache-ratio=3, memory.min_available=32GiB, env.X=1",
                )
            ]
        )
    path = _path(key)
    return path, _value(path, said.strip())


def _path(key: str) -> list[str]:
    first, dot, rest = key.partition(".")
    if first not in Service.model_fields:
        return ["flags", key]
    if not dot:
        return [first]
    if first in ("flags", "env"):
        return [first, rest]
    return [first, *rest.split(".")]


def _value(path: list[str], said: str) -> Any:
    """JSON where it reads as JSON, else text. JSON has no 1e3 that YAML would call a word."""
    if said == "null":
        return None
    if path[0] in TEXTUAL and len(path) > 1:
        return said
    try:
        return json.loads(said)
    except ValueError:
        return said


def _without(written: Mapping[str, Any], path: list[str]) -> dict[str, Any]:
    """`written` without what stands at `path`; the parts above it stay."""
    first, *rest = path
    result = dict(written)
    below = result.get(first)
    if not rest:
        result.pop(first, None)
    elif isinstance(below, Mapping):
        opaque = {k: v for k, v in below.items() if k != rest[0]}
        result[first] = opaque if first in OPAQUE or len(rest) == 1 else _without(below, rest)
    return result
