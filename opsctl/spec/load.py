"""From the reader's document to checked services, or to everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from opsctl import engine
from opsctl.errors import Problem, SpecError
from opsctl.spec import words
from opsctl.spec.bounds import out_of_bounds
from opsctl.spec.conflicts import conflicts
from opsctl.spec.kinds import SERVICE_NAME
from opsctl.spec.merge import merge
from opsctl.spec.models import Service
from opsctl.spec.origin import Origins
from opsctl.spec.together import refused


def load(document: Mapping[str, Any], host: str) -> dict[str, Service]:
    """The services of `host`, by name, in the order they are written.

    `document`: {"hosts": {HOST: {"sglang_services", "sglang_overrides", "origins", "vars"}}}.
    Flags come back typed and by canonical name. Raises SpecError with every problem.
    """
    said = document["hosts"][host]
    services, found = check(
        said.get("sglang_services") or {},
        said.get("sglang_overrides") or {},
        login=str((said.get("vars") or {}).get("ansible_user") or ""),
    )
    if found:
        raise SpecError(placed(found, said, host))
    return services


def check(
    services: Any, overrides: Any, *, login: str = ""
) -> tuple[dict[str, Service], list[Problem]]:
    """The right services of one host, and the problems of the others. Pure.

    `login`: the user of the SSH connection, which must not be a service's user.
    """
    found = _shapes(services, overrides)
    if found:
        return {}, found
    found = _strangers(services, overrides)
    strangers = {problem.service for problem in found}
    changes = {name: part for name, part in overrides.items() if name not in strangers}
    right: dict[str, Service] = {}
    wrongs: dict[str, Any] = {}
    for name, written in merge(services, changes).items():
        service, wrong = _service(name, written, login)
        found += wrong
        if service is not None and not wrong:
            right[name] = service
            if name in services and changes.get(name):
                shared, wrong = _service(name, services[name], login)
                if shared is not None and not wrong:  # alone it may be no description at all
                    right[name] = service.changed_from(shared)
        else:
            wrongs[name] = written
    return right, found + conflicts(right, wrongs)


def placed(found: Sequence[Problem], said: Mapping[str, Any], host: str) -> list[Problem]:
    """The problems with their host, and the file and line where each value was written."""
    changes = said.get("sglang_overrides")
    origins = Origins(said.get("origins") or {}, changes if isinstance(changes, Mapping) else {})
    return [
        replace(p, host=host, file=p.file or (origins.of(p.service, p.key) if p.service else ""))
        for p in found
    ]


def together(found: Sequence[Problem]) -> list[Problem]:
    """Problems that differ by their host alone, as one that names the hosts (the first five)."""
    hosts: dict[Problem, list[str]] = {}
    for problem in found:
        hosts.setdefault(replace(problem, host=""), []).append(problem.host)
    return [replace(problem, host=_listed(names)) for problem, names in hosts.items()]


def _listed(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def misplaced(services: Any, overrides: Any) -> list[Problem]:
    """What is no mapping, or changes a service that is not there."""
    return _shapes(services, overrides) or _strangers(services, overrides)


def _shapes(services: Any, overrides: Any) -> list[Problem]:
    found = []
    for variable, value in (("sglang_services", services), ("sglang_overrides", overrides)):
        if not isinstance(value, Mapping):
            found.append(Problem("must be a mapping of services by name", key=variable))
            continue
        for name, part in value.items():
            if not isinstance(part, Mapping) and not (
                part is None and variable != "sglang_services"
            ):
                found.append(Problem(f"must be a mapping ({variable})", service=str(name)))
    return found


def _strangers(services: Mapping[str, Any], overrides: Mapping[str, Any]) -> list[Problem]:
    """Overrides of services that the host has not. A whole service of its own is none."""
    found = []
    for name, part in overrides.items():
        if name in services or (part and {"model", "engine"} <= set(part)):
            continue
        near = get_close_matches(name, list(services), n=1, cutoff=0.6)
        found.append(
            Problem(
                "is changed by sglang_overrides, but this host has no such service",
                service=name,
                allowed=", ".join(services),
                hint=f"did you mean {near[0]}?" if near else "",
            )
        )
    return found


def _service(
    name: str, written: Mapping[str, Any], login: str
) -> tuple[Service | None, list[Problem]]:
    found: list[Problem] = []
    if not SERVICE_NAME.fullmatch(name) or ".." in name:
        allowed = "a to z, 0 to 9, . _ - within, at most 48 characters"
        found.append(Problem("is no name for a unit", service=name, allowed=allowed))
    try:
        service = Service.model_validate(written)
    except ValidationError as error:
        found += words.problems(error, name, written)
        return None, found + _flags_alone(name, written)
    if login and service.user == login:
        message = "is the user of the SSH connection: its shared memory goes when it logs out"
        hint = "use a system user of its own, such as sglang"
        found.append(Problem(message, service=name, key="user", value=login, hint=hint))
    typed, wrong = _flags(name, service.engine.version, service.flags)
    service = service.model_copy(update={"flags": typed})
    return service, found + (wrong or refused(name, service))


def _flags(
    name: str, version: str, flags: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    try:
        typed, found = engine.catalogue(version).check(flags, name)
        return typed, found + out_of_bounds(name, typed)
    except SpecError as error:
        return {}, [replace(p, service=name) for p in error.problems]


def _flags_alone(name: str, written: Mapping[str, Any]) -> list[Problem]:
    """Problems of the flags where the rest is wrong already, so that one run tells them all."""
    described, flags = written.get("engine"), written.get("flags")
    version = described.get("version") if isinstance(described, Mapping) else None
    if not isinstance(version, str) or not isinstance(flags, Mapping):
        return []
    return _flags(name, version, flags)[1]
