"""A service's flags as one version of the engine reads them: from a file, or from the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsctl.cli.foretelling import is_file
from opsctl.errors import NothingSelected, Problem, SpecError

if TYPE_CHECKING:
    from opsctl.cli.frame import Settings
    from opsctl.engine.advisories import Facts


@dataclass(frozen=True)
class Described:
    """A service, the hosts that have it so (none: it is of a file), and its flags and env."""

    service: str
    hosts: tuple[str, ...]
    flags: Mapping[str, Any]
    env: Mapping[str, str]

    def facts(self, version: str) -> Facts:
        """What a description alone tells to advisories: nothing of model and hosts."""
        from opsctl.engine.advisories import Facts

        return Facts(version, self.flags, self.env)


def flags_of(name: str, settings: Settings, version: str) -> list[Described]:
    """The service, once for each way in which hosts have it; its flags typed by `version`.

    Raises SpecError (they are not right for it), NothingSelected, and as `single` does.
    """
    if is_file(name):
        return [_of_file(Path(name), version)]
    from opsctl import inventory, spec

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    chosen = inventory.select(inventory.book_of(path, raw), [name], settings.hosts)
    chosen.must_be_read()
    found: list[Described] = []
    for host in chosen.names:
        service = spec.load(raw, host)[name]
        flags = _typed(name, service.flags, version)
        same = next((d for d in found if (d.flags, d.env) == (flags, service.env)), None)
        hosts = (*(same.hosts if same else ()), host)
        found = [d for d in found if d is not same]
        found.append(Described(name, hosts, flags, service.env))
    if not found:
        raise NothingSelected(f"no host has a service {name}", hint="opsctl hosts")
    return found


def _of_file(path: Path, version: str) -> Described:
    from opsctl.inventory.single import single, unresolved

    written = single(path)
    parts = {key: written.entry.get(key) or {} for key in ("flags", "env")}
    if wrong := [key for key, part in parts.items() if not isinstance(part, Mapping)]:
        message = "must be a mapping"
        raise SpecError([Problem(message, file=str(path), service=written.name, key=wrong[0])])
    if found := unresolved(written.name, parts, path):
        raise SpecError(found)
    env = {str(key): str(value) for key, value in parts["env"].items()}
    return Described(written.name, (), _typed(written.name, parts["flags"], version), env)


def _typed(name: str, flags: Mapping[str, Any], version: str) -> dict[str, Any]:
    from opsctl.engine import catalogue

    typed, problems = catalogue(version).check(flags, name)
    if problems:
        raise SpecError(problems)
    return typed
