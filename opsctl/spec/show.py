"""What `opsctl config show` and `config validate` answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, SecretStr

from opsctl import engine
from opsctl.errors import NothingSelected, Problem, SpecError
from opsctl.spec.load import load, together
from opsctl.spec.models import Service
from opsctl.spec.origin import DEFAULT, UNKNOWN, Origins
from opsctl.spec.together import noted

MASK = "********"


@dataclass(frozen=True)
class Shown:
    """One value as it counts: `value` is JSON-ready and never a secret."""

    host: str
    service: str
    key: str
    value: Any
    origin: str


def show(document: Mapping[str, Any], host: str, service: str | None = None) -> list[Shown]:
    """Every value of a host's services (or of one), with where it was written.

    Raises SpecError if the description is not right, NothingSelected if there is no such service.
    """
    said = document["hosts"][host]
    services = load(document, host)
    if service is not None and service not in services:
        raise NothingSelected(f"{host} has no service {service}: {', '.join(services) or 'none'}")
    origins = Origins(said.get("origins") or {}, said.get("sglang_overrides") or {})
    return [
        Shown(host, name, key, value, _origin(origins, name, one, key) if is_set else DEFAULT)
        for name, one in services.items()
        if service in (None, name)
        for key, value, is_set in _leaves(one)
    ]


def _origin(origins: Origins, name: str, service: Service, key: str) -> str:
    """Where it was written, under whichever of its names."""
    flags = engine.catalogue(service.engine.version).flags
    part, _, flag = key.partition(".")
    names = [f"flags.{n}" for n in flags[flag].names] if part == "flags" else [key]
    return origins.exactly(name, *names) or UNKNOWN


def validate(document: Mapping[str, Any], hosts: Sequence[str] | None = None) -> list[Problem]:
    """Everything that is wrong on these hosts (all if None); what hosts share is said once."""
    found: list[Problem] = []
    for host in document["hosts"] if hosts is None else hosts:
        try:
            load(document, host)
        except SpecError as error:
            found += error.problems
    return together(found)


def notes(document: Mapping[str, Any], hosts: Sequence[str] | None = None) -> list[Problem]:
    """What is allowed and yet worth saying, of hosts whose descriptions are right."""
    found: list[Problem] = []
    for host in document["hosts"] if hosts is None else hosts:
        try:
            services = load(document, host)
        except SpecError:
            continue
        for name, service in services.items():
            catalogue = engine.catalogue(service.engine.version)
            for note in catalogue.notes(service.flags):
                found.append(Problem(note, host=host, service=name, key="flags"))
            found += [replace(note, host=host) for note in noted(name, service)]
    return together(found)


def _leaves(
    part: BaseModel, above: str = "", unset: bool = False
) -> Iterator[tuple[str, Any, bool]]:
    """(key, value, whether it was written) of every leaf, in the model's order."""
    for name, field in type(part).model_fields.items():
        key = above + (field.alias or name)
        value = getattr(part, name)
        written = not unset and name in part.model_fields_set
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{key}.", not written)
        elif isinstance(value, dict):
            for inner, one in value.items():
                yield f"{key}.{inner}", _plain(one), True
        else:
            yield key, _plain(value), written


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
