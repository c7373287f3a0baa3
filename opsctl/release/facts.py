"""What a service's description amounts to, where the unit and the manifest both say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.onhost.startup import TIMING
from opsctl.spec.models import Service


def draft_of(typed: Mapping[str, Any]) -> str | None:
    """The draft model's folder; None if there is none, or it is a name and not a folder."""
    path = typed.get("speculative-draft-model-path")
    return path if isinstance(path, str) and path.startswith("/") else None


def root_of(service: Service) -> str:
    return (service.engine.root or f"/opt/sglang/{service.engine.version}").rstrip("/")


def served_name_of(service: Service) -> str:
    """The name that clients ask for; the engine's own default is the path as it was given."""
    return service.model.served_name or service.model.path


def cache_of(name: str) -> str:
    return f"/var/cache/opsctl/{name}"


def cap_of(service: Service) -> float:
    """Seconds that a start may take where no forecast tells: the owner's, else the usual. A cap
    that comes of a forecast is no part of the unit: it moves with what is measured, and must
    restart nothing."""
    return TIMING["cap"] if service.timing.cap is None else float(service.timing.cap)


def limit_of(service: Service, expect: Mapping[str, Any] | None) -> float:
    """Seconds that a start may take as far as the unit's start limit is concerned, which must span
    several: else a model that loads for hours and fails is started for ever. A forecast tells it
    only where it is beyond the usual: see `widened`."""
    told = ((expect or {}).get("start") or {}).get("limit")
    return cap_of(service) if told is None else float(told)


def widened(
    service: Service, expect: Mapping[str, Any] | None, standing: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """`expect` with "start"."limit" where its cap is beyond the usual: the usual one doubled until
    it holds the cap, and never less than in the `standing` expectation: what is in the page cache
    moves a cap by the hour, and a forecast that is lost tells none. The unit shall not move with
    either. Where the owner has set a cap, that one is meant."""
    if service.timing.cap is not None:
        return expect
    start: Mapping[str, Any] = (expect or {}).get("start") or {}
    stood = ((standing or {}).get("start") or {}).get("limit")
    limit = max(TIMING["cap"], float(stood or 0))
    while limit < float(start.get("cap") or 0):
        limit *= 2
    if limit == TIMING["cap"]:
        return expect
    return {**(expect or {}), "start": {**start, "limit": limit}}
