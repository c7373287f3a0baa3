"""What is a secret, by its name and by its form; and which variable of a vault it moves to.

Once found, a secret's text stands in no description, note, problem or exception: `Vault.hide`
goes over every text that leaves the room.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from opsctl.errors import Problem
from opsctl.importing.model import Note
from opsctl.spec.kinds import public_env_name

# Beyond the names that a description refuses in `env` (spec.kinds): they would be taken there.
_NAME = re.compile(
    r"(^|[_.-])(PASS|PASSPHRASE|PASSCODE|PRIVATE_?KEY|CREDENTIALS?|AUTH(ORIZATION)?|BEARER)$"
)
# A name that ends so, and yet is a place or a switch.
_FORM = re.compile(
    r"hf_[A-Za-z0-9_]{8,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|glpat-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{12,}|xox[abprs]-[\w-]{10,}|nvapi-[\w-]{16,}"
    r"|(?<![\w-])eyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]{5,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*+://[^/\s:@]*+:[^/\s@]++@"
)
_MASK = "***"
_LEAST = 4  # shorter texts stand in ordinary words, and hiding them would garble every message


def by_name(name: str) -> bool:
    upper = name.upper().replace("-", "_").replace(".", "_")
    if _NAME.search(upper):
        return True
    try:
        public_env_name(re.sub(r"\W", "_", upper) or "_")
    except ValueError:
        return not upper[:1].isdigit()
    return False


def by_form(value: str) -> bool:
    return _FORM.search(value) is not None


@dataclass
class Vault:
    """The secrets of one import, by the names of their variables."""

    service: str
    values: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    weak: set[str] = field(default_factory=set)  # templates of secrets that need a new value

    def keep(self, name: str, value: str) -> str:
        """The template that stands for it in the description."""
        self.hidden.add(value)
        stem = re.sub(r"[^a-z0-9]+", "_", f"{self.service}_{name}".lower()).strip("_")
        variable, n = f"vault_{stem}", 2
        while self.values.get(variable, value) != value:
            variable, n = f"vault_{stem}_{n}", n + 1
        self.values[variable] = value
        return template(variable)

    def reveal(self, value: Any) -> Any:
        """A part of a description with the secrets in place, to check what it renders to."""
        if isinstance(value, str):
            known = {template(name): text for name, text in self.values.items()}
            return known.get(value, value)
        if isinstance(value, Mapping):
            return {key: self.reveal(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.reveal(part) for part in value]
        return value

    def hide(self, text: str) -> str:
        for secret in sorted(self.hidden, key=len, reverse=True):
            if len(secret) >= _LEAST:
                for spelling in (
                    secret,
                    json.dumps(secret)[1:-1],
                    repr(secret)[1:-1],
                    quote(secret, safe="", errors="replace"),
                ):
                    text = text.replace(spelling, _MASK)
        return _FORM.sub(_MASK, text)

    def hide_note(self, note: Note) -> Note:
        return Note(note.kind, self.hide(note.what), self.hide(note.why))

    def hide_problem(self, problem: Problem) -> Problem:
        parts = {key: self.hide(text) for key, text in vars(problem).items()}
        return replace(problem, **parts)


_NAMED = re.compile(
    r"(?<![\w.-])-*+([A-Za-z_][\w.-]*+)[\"']?[\s=:\\]+(?:\$?[\"'])?([^\s\"',;&|{}$\\/-][^\s\"',;&|}]*)"
)


_PASSWORD = re.compile(r"://[^/\s:@]*+:([^/\s@]++)@")


def suspects(text: str) -> set[str]:
    """Everything in a text that stands after a name of a secret, however broken the text is."""
    found = set(_PASSWORD.findall(text))
    at = 0
    while (match := _NAMED.search(text, at)) is not None:
        name = match[1].lstrip("-")
        if by_name(name) or (len(name) > 4 and "api-key".startswith(name)):
            found.add(match[2])
        at = match.end(1)
    return found


def template(variable: str) -> str:
    return "{{ " + variable + " }}"


def within(value: Any, name: str = "") -> list[tuple[str, str]]:
    """(name, text) of the secrets inside a flag's value: by the keys of its mappings, by form."""
    if isinstance(value, str):
        head, equals, _ = value.partition("=")
        named = bool(name and by_name(name)) or bool(equals and by_name(head))
        return [(name, value)] if value and (named or by_form(value)) else []
    if isinstance(value, Mapping):
        return [one for key, part in value.items() for one in within(part, str(key))]
    if isinstance(value, list):
        return [one for part in value for one in within(part, name)]
    return []
