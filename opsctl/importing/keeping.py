"""The secrets of a launch in their places: templates in the description, values in the vault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opsctl.importing.environment import Variables
from opsctl.importing.flags import SECRETS
from opsctl.importing.model import Report
from opsctl.importing.places import Places, is_hub_name
from opsctl.importing.secrets import Vault, within
from opsctl.release.secrets import check


def hidden(name: str, value: Any, vault: Vault, report: Report) -> Any:
    """A flag's value with the secrets inside it moved out of the description. (In the unit they
    stand again: the engine takes them on its command line only, which the report says.)"""
    if is_hub_name(name, value):
        report.note(
            "told",
            f"{name}: {value}",
            "a hub's name: the engine fetches it at its start; a folder of the host is surer",
        )
    found = within(value, name if isinstance(value, str) else "")
    for key, secret in found:
        kept = vault.keep(f"{name} {key}", secret)
        value = _replaced(value, secret, kept)
        report.note(
            "moved",
            f"{name}: {key or 'its value'}",
            f"{kept}; the engine takes it on its "
            "command line only, so it stays readable on the host",
        )
    return value


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, list):
        return [_replaced(part, old, new) for part in value]
    if isinstance(value, dict):
        return {key: _replaced(part, old, new) for key, part in value.items()}
    return value


def secrets(placed: Places, around: Variables, vault: Vault, report: Report) -> dict[str, Any]:
    secrets: dict[str, Any] = {}
    for name in SECRETS:
        value = placed.values.get(name)
        if value == "":
            report.note("dropped", name, "it is empty, as if it were not set")
            placed.values.pop(name)
        elif value is not None:
            secrets[name] = vault.keep(name, value)
            report.note(
                "moved",
                f"--{name}",
                f"{secrets[name]} in secrets: every user of "
                "the host could read it in the command line; put its value into a vault",
            )
    if around.secret:
        secrets["env"] = dict(around.secret)
    return secrets


def weak(name: str, service: Mapping[str, Any], vault: Vault, report: Report) -> None:
    """Secrets that no release takes as they are: a new one is needed, which the report says."""
    told = service.get("secrets") or {}
    named = {key: value for key, value in told.items() if key != "env"}
    named |= {f"env.{key}": value for key, value in (told.get("env") or {}).items()}
    public = json.dumps(vault.reveal({k: v for k, v in service.items() if k != "secrets"}))
    for key, value in named.items():
        secret = vault.reveal(value)
        wrong = [problem.message for problem in check({key: secret}, name)]
        if json.dumps(secret)[1:-1] in public or secret in public:
            wrong.append("it also stands elsewhere in the description, where it is public")
        if wrong:
            vault.weak.add(value)
            report.note(
                "changed",
                key.removeprefix("env."),
                f"{wrong[0]}: put a new one into the vault, and give it to whoever uses it",
            )
