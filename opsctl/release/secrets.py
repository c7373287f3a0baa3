"""The secrets of a service as release files, refused where they could not stay secret."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from opsctl.errors import Problem
from opsctl.release import quoting
from opsctl.release.model import SECRETS, File
from opsctl.spec.models import Secrets

# A shorter one would be masked in the middle of ordinary words of the journal, and is guessed.
LEAST_LENGTH = 8
_KEYS = ("api-key", "admin-api-key")


def values(secrets: Secrets) -> dict[str, str]:
    """Name → value, by the names of their files: api-key, admin-api-key, env.NAME."""
    named = {"api-key": secrets.api_key, "admin-api-key": secrets.admin_api_key}
    named |= {f"env.{name}": value for name, value in sorted(secrets.env.items())}
    return {name: value.get_secret_value() for name, value in named.items() if value is not None}


def files(found: Mapping[str, str]) -> dict[str, File]:
    return {f"{SECRETS}{name}": File(0o600, value.encode()) for name, value in found.items()}


def check(found: Mapping[str, str], service: str) -> list[Problem]:
    """All that is wrong with the secrets. No message holds a value."""
    problems = []
    for name, value in found.items():
        key = f"secrets.{name}"
        if why := _why_refused(name, value):
            problems.append(Problem(why, service=service, key=key))
    return problems


def _why_refused(name: str, value: str) -> str:
    if len(value) < LEAST_LENGTH:
        return f"a secret of less than {LEAST_LENGTH} characters cannot be masked in logs"
    if name in _KEYS:
        if not all("!" <= c <= "~" for c in value):
            return "a key may hold visible ASCII characters only: clients send it in a header"
        return ""
    try:
        quoting.argument(value)
        quoting.environment(name.removeprefix("env."), "")
    except quoting.Unquotable as error:
        return str(error)
    return ""


def leaks(found: Mapping[str, str], public: Iterable[str], service: str) -> list[Problem]:
    """A secret that also stands in the unit or manifest (put into a flag, say) is refused."""
    texts = list(public)
    return [
        Problem(
            "the secret also stands elsewhere in the description, where it becomes public",
            service=service,
            key=f"secrets.{name}",
            hint="give it in secrets only, and make it differ from every other value",
        )
        for name, value in found.items()
        if any(spelling in text for spelling in _spellings(value) for text in texts)
    ]


def _spellings(value: str) -> set[str]:
    return {
        value,
        json.dumps(value)[1:-1],
        quote(value, safe=""),
        value.replace("%", "%%").replace("$", "$$"),
    }
