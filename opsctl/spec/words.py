"""What pydantic found, in the words of our own problems: key, value, what is allowed, near name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from opsctl.engine import having
from opsctl.errors import Problem
from opsctl.spec.models import Service

_SECRET = ("key", "token", "secret", "password", "passwd", "credential")
_PLAIN = {
    "missing": "is missing",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_too_short": "must not be empty",
}


def problems(error: ValidationError, service: str, written: Mapping[str, Any]) -> list[Problem]:
    """One problem for each thing that is wrong with `written`. No secret's value is shown."""
    return [_problem(one, service, written) for one in error.errors(include_url=False)]


def _problem(error: Any, service: str, written: Mapping[str, Any]) -> Problem:
    path = [part for part in error["loc"] if part != "[key]"]
    key = ".".join(str(part) for part in path)
    kind, context = str(error["type"]), error.get("ctx", {})
    value = _at(written, path)
    message, allowed, hint = _PLAIN.get(kind, ""), "", ""
    if kind == "extra_forbidden":
        allowed = ", ".join(keys := _keys_of(path[:-1]))
        message, hint = "is not a key of a service's description", _place(str(path[-1]), keys)
    elif kind == "literal_error":
        expected = [part.strip("'\"") for part in str(context["expected"]).split(" or ")]
        message, allowed = "is not one of its values", ", ".join(expected)
        hint = _near(str(value), expected)
    elif kind == "value_error":
        message = str(context.get("error", error["msg"]))
    elif kind.startswith(("greater_than", "less_than")):
        message, allowed = "is out of range", str(error["msg"]).removeprefix("Input should be ")
    if kind == "string_type" and isinstance(value, int | float) and not _hidden(path):
        said = str(value).lower() if isinstance(value, bool) else str(value)
        hint = f'quote it: "{said}"'
    return Problem(
        message=message or str(error["msg"]),
        service=service,
        key=key,
        value="" if kind == "missing" or not path or _hidden(path) else shown(value),
        allowed=allowed,
        hint=hint,
    )


def shown(value: Any) -> str:
    """A value for a message. Of a mapping or list nothing is shown: it may hold a secret. Nor of an
    address that holds a password, or a query, which may be a signature."""
    if isinstance(value, str) and "://" in value and ("@" in value or "?" in value):
        return ""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple) and any(not isinstance(v, int | float) for v in value):
        return "a list"
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


def _hidden(path: list[Any]) -> bool:
    """Under secrets, or under a name that reads like one: a misplaced secret is one, too."""
    words = [str(part).lower() for part in path]
    return "secrets" in words or any(secret in word for word in words for secret in _SECRET)


def _at(written: Any, path: list[Any]) -> Any:
    for part in path:
        try:
            written = written[part]
        except (KeyError, IndexError, TypeError):
            return None
    return written


def _keys_of(path: list[Any]) -> list[str]:
    """The keys that the model at `path` has, as they are written."""
    model: Any = Service
    for part in path:
        field = next((f for n, f in model.model_fields.items() if part in (n, f.alias)), None)
        model = model_in(field.annotation) if field else None
        if model is None:
            return []
    return [field.alias or name for name, field in model.model_fields.items()]


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, if it holds one (perhaps or None)."""
    options = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _place(name: str, keys: list[str]) -> str:
    """Where an unknown key belongs: it may be a misspelt one, a secret, or a flag."""
    spelled = name.lower().replace("_", "-")
    if spelled in ("api-key", "admin-api-key"):
        return f"write it as secrets.{spelled}"
    if having(spelled):
        return f"write it under flags, as {spelled}"
    return _near(name, keys)


def _near(name: str, known: list[str]) -> str:
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else ""
