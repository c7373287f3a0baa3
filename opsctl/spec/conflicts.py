"""What services of one host must not share: an address, a GPU; and whether GPUs suffice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from opsctl import engine
from opsctl.errors import Problem
from opsctl.spec.models import Service

_EVERYWHERE = {"0.0.0.0", "::"}


def conflicts(services: Mapping[str, Service]) -> list[Problem]:
    """Of one host. Flags are typed and by canonical name."""
    found = []
    for (one, first), (two, second) in combinations(services.items(), 2):
        found += _addresses(one, first, two, second)
        found += _shared_gpus(one, first, two, second)
    for name, service in services.items():
        found += _enough(name, service)
    return found


def _addresses(one: str, first: Service, two: str, second: Service) -> list[Problem]:
    meet = first.host == second.host or _EVERYWHERE & {first.host, second.host}
    if first.port != second.port or not meet:
        return []
    return [Problem(f"is the port of {one} too", service=two, key="port", value=str(second.port))]


def _on_gpus(service: Service) -> bool:
    return bool(service.flags.get("device", "cuda") != "cpu")


def _shared_gpus(one: str, first: Service, two: str, second: Service) -> list[Problem]:
    if not (_on_gpus(first) and _on_gpus(second)):
        return []
    if first.gpus is None or second.gpus is None:
        lacks = two if second.gpus is None else one
        other = one if lacks == two else two
        hint = "say which GPUs each service has"
        message = f"is unset, which takes the GPUs of {other} too"
        return [Problem(message, service=lacks, key="gpus", hint=hint)]
    shared = sorted(set(first.gpus) & set(second.gpus))
    if not shared:
        return []
    message = f"GPU {', '.join(map(str, shared))} belongs to {one} too"
    return [Problem(message, service=two, key="gpus", value=str(list(second.gpus)))]


def _enough(name: str, service: Service) -> list[Problem]:
    """Each rank of this host takes a GPU of its own, from base-gpu-id on, in steps."""
    catalogue = engine.catalogue(service.engine.version)
    try:
        ranks = len(catalogue.ranks(service.flags))
    except ValueError as error:
        return [Problem(str(error), service=name, key="flags")]
    if service.gpus is None or not _on_gpus(service):
        return []
    step = int(catalogue.get(service.flags, "gpu-id-step") or 1)
    needed = int(catalogue.get(service.flags, "base-gpu-id") or 0) + (ranks - 1) * step + 1
    if len(service.gpus) >= needed:
        return []
    return [
        Problem(
            f"{len(service.gpus)} GPUs are too few: the flags make {ranks} ranks on this host, "
            f"which take {needed}",
            service=name,
            key="gpus",
            value=str(list(service.gpus)),
        )
    ]
