"""What services of one host must not share: an address, a GPU; and whether GPUs suffice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from opsctl import engine
from opsctl.errors import Problem
from opsctl.spec.models import Service

_EVERYWHERE = {"0.0.0.0", "::"}


@dataclass(frozen=True)
class Place:
    """What a service takes of its host for itself alone."""

    host: str
    port: int
    gpus: frozenset[int] | None
    on_gpus: bool


def conflicts(services: Mapping[str, Service], others: Mapping[str, Any]) -> list[Problem]:
    """Of one host. Flags are typed and by canonical name. `others`: services as written that have
    faults of their own: what can be read of them is judged too, so that one run tells all."""
    found = []
    places = {name: _place(service) for name, service in services.items()}
    rough = {name: _roughly(written) for name, written in others.items()}
    places |= {name: place for name, place in rough.items() if place is not None}
    for (one, first), (two, second) in combinations(places.items(), 2):
        found += _addresses(one, first, two, second)
        found += _shared_gpus(one, first, two, second)
    for name, service in services.items():
        found += _enough(name, service)
    return found


def _place(service: Service) -> Place:
    gpus = None if service.gpus is None else frozenset(service.gpus)
    return Place(service.host, service.port, gpus, _on_gpus(service.flags))


def _roughly(written: Any) -> Place | None:
    """None where one of the parts cannot be told."""
    if not isinstance(written, Mapping):
        return None
    fields, gpus, flags = Service.model_fields, written.get("gpus"), written.get("flags") or {}
    host = written.get("host", fields["host"].default)
    port = written.get("port", fields["port"].default)
    told = isinstance(host, str) and type(port) is int and isinstance(flags, Mapping)
    if not told or not (gpus is None or _numbers(gpus)):
        return None
    return Place(host, port, None if gpus is None else frozenset(gpus), _on_gpus(flags))


def _numbers(gpus: Any) -> bool:
    return isinstance(gpus, list) and all(type(n) is int for n in gpus)


def _addresses(one: str, first: Place, two: str, second: Place) -> list[Problem]:
    meet = first.host == second.host or _EVERYWHERE & {first.host, second.host}
    if first.port != second.port or not meet:
        return []
    return [Problem(f"is the port of {one} too", service=two, key="port", value=str(second.port))]


def _on_gpus(flags: Mapping[str, Any]) -> bool:
    return bool(flags.get("device", "cuda") != "cpu")


def _shared_gpus(one: str, first: Place, two: str, second: Place) -> list[Problem]:
    if not (first.on_gpus and second.on_gpus):
        return []
    if first.gpus is None or second.gpus is None:
        lacks = two if second.gpus is None else one
        other = one if lacks == two else two
        hint = "say which GPUs each service has"
        message = f"is unset, which takes the GPUs of {other} too"
        return [Problem(message, service=lacks, key="gpus", hint=hint)]
    shared = sorted(first.gpus & second.gpus)
    if not shared:
        return []
    message = f"GPU {', '.join(map(str, shared))} belongs to {one} too"
    return [Problem(message, service=two, key="gpus", value=str(sorted(second.gpus)))]


def _enough(name: str, service: Service) -> list[Problem]:
    """Each rank of this host takes a GPU of its own, from base-gpu-id on, in steps."""
    catalogue = engine.catalogue(service.engine.version)
    try:
        ranks = len(catalogue.ranks(service.flags))
    except ValueError as error:
        return [Problem(str(error), service=name, key="flags")]
    if service.gpus is None or not _on_gpus(service.flags):
        return []
    step = int(catalogue.get(service.flags, "gpu-id-step") or 1)
    needed = int(catalogue.get(service.flags, "base-gpu-id") or 0) + (ranks - 1) * step + 1
    if len(service.gpus) >= needed:
        return []
    return [
        Problem(
            f"{_few(len(service.gpus))} too few: the flags make {ranks} ranks on this host, "
            f"which take {needed}",
            service=name,
            key="gpus",
            value=str(list(service.gpus)),
        )
    ]


def _few(gpus: int) -> str:
    return "1 GPU is" if gpus == 1 else f"{gpus} GPUs are"
