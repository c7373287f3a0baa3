"""Why a flag does not take a value; and the text that any argument has to be."""

from __future__ import annotations

from typing import Any


class Refused(ValueError):
    """A value that the flag does not take."""

    def __init__(self, message: str, *, allowed: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.allowed = allowed
        self.hint = hint


def clean(value: str) -> str:
    """Text that can be an argument of a process. Raises Refused."""
    if "\0" in value:
        raise Refused("holds a NUL character, which no argument can")
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise Refused("holds half a surrogate pair, which is not text")
    return str.__str__(value)


def worded(value: Any) -> str:
    """Text as an owner writes it. Raises Refused."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool):
        said = "on/yes/true" if value else "off/no/false"
        raise Refused("must be text", hint=f'a bare {said} is a truth value in YAML: quote it "…"')
    if isinstance(value, int | float):
        raise Refused("must be text", hint=f'quote it: "{value}"')
    raise Refused("must be text")
