"""The secrets of a launch in their places: templates in the description, values in the vault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opsctl.engine.jsonforms import form_of
from opsctl.importing.environment import Variables
from opsctl.importing.flags import SECRETS
from opsctl.importing.marks import theirs
from opsctl.importing.model import Report
from opsctl.importing.places import Places, is_hub_name
from opsctl.importing.secrets import Vault, holds, template, within
from opsctl.release.secrets import check


def hidden(name: str, value: Any, version: str, vault: Vault, report: Report) -> Any:
    """A flag's value with the secrets inside it moved out of the description. (In the unit they
    stand again: the engine takes them on its command line, or in a file, which the report says.)"""
    if is_hub_name(name, value):
        report.note(
            "told",
            f"{name}: {theirs(value)}",
            "a hub's name: the engine fetches it at its start; a folder of the host is surer",
        )
    found = within(value, name if isinstance(value, str) else "")
    for key, secret in found:
        kept = vault.keep(name if key == name else f"{name} {key}", secret)
        value = _replaced(value, secret, kept)
        report.note(
            "moved",
            f"{name}: {theirs(key) if key else 'its value'}",
            f"{kept}; {_exposed(name, version)}",
        )
    return value


def _exposed(name: str, version: str) -> str:
    """What a secret in a flag is open to, and what to do."""
    form = form_of(name, version)
    if form is not None and form.endings is not None:
        file = f"{form.at}FILE{(form.endings or ('',))[0]}"
        return (
            "in the unit and in release.json every user of the host can read it: write the whole "
            "value to a file that only the service's user can read (mode 0600), and give "
            f"{name}: {file} in its place"
        )
    return (
        "the engine takes it on its command line only, so it stays readable on the host: give it "
        "no more rights than it needs, and a new value if others have seen it"
    )


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
    for name in [n for n, text in around.plain.items() if _whose(text, vault)]:
        around.secret[name] = vault.keep(name, around.plain.pop(name))
        report.note("moved", name, f"{around.secret[name]} in secrets.env: it holds another secret")
    if around.secret:
        secrets["env"] = dict(around.secret)
    return secrets


def _whose(text: str, vault: Vault) -> str:
    """The variable of the vault whose secret a text tells; "" if there is none."""
    return next((name for name, secret in vault.values.items() if holds(text, secret)), "")


def apart(service: Mapping[str, Any], vault: Vault, report: Report) -> dict[str, Any]:
    """The description without the secrets that also stand in other places of it. The whole value
    moves to a variable of its own: the secret itself needs a new value (`weak`), and this place
    keeps what it has. What cannot be a variable is refused."""
    ours = {template(name) for name in vault.values}

    def walk(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            for part in value:
                if source := _whose(str(part), vault):
                    _inseparable(f"{key}.***".lstrip("."), source, report)
            return {k: walk(v, f"{key}.{k}".lstrip(".")) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(part, key) for part in value]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        source = _whose(str(value), vault) if number or isinstance(value, str) else ""
        if not source or value in ours:
            return value
        if number or not key.startswith(_TEXTS):
            _inseparable(key, source, report)
            return value
        kept = vault.keep(key.removeprefix("flags."), value)
        report.note(
            "moved",
            key,
            f"{kept}; it holds the secret of {source}, and stays readable on the host there",
        )
        return kept

    return {key: walk(value, key) for key, value in service.items()}


# Places of a description in which a variable of a vault may stand.
_TEXTS = ("flags.", "model.path", "model.served_name")


def _inseparable(key: str, source: str, report: Report) -> None:
    report.refuse(
        f"holds the secret that is moved to {source}, and cannot be moved with it",
        key=key,
        hint="give the service another secret, or change this value, and import again",
    )


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(place, text) of everything in a description."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield f"{key}.{name}".lstrip("."), str(name)
            yield from _leaves(part, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part, key)
    else:
        yield key, str(value)


def weak(name: str, service: Mapping[str, Any], vault: Vault, report: Report) -> None:
    """Secrets that no release takes as they are: a new one is needed, which the report says."""
    told = service.get("secrets") or {}
    named = {key: value for key, value in told.items() if key != "env"}
    named |= {f"env.{key}": value for key, value in (told.get("env") or {}).items()}
    public = vault.reveal({k: v for k, v in service.items() if k != "secrets"})
    for key, value in named.items():
        secret = vault.reveal(value)
        wrong = [problem.message for problem in check({key: secret}, name)]
        if places := [key for key, text in _leaves(public) if holds(text, secret)]:
            wrong.append(f"it also stands in {', '.join(places[:3])}, where it is public")
        if wrong:
            vault.weak.add(value)
            report.note(
                "changed",
                key.removeprefix("env."),
                f"{wrong[0]}: put a new one into the vault, and give it to whoever uses it",
            )
