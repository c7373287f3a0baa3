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
    """Seconds that a start may take as far as the unit is concerned: its start limit must span
    several. A cap that comes of a forecast is no part of the unit: it moves with what is measured,
    and must restart nothing."""
    return TIMING["cap"] if service.timing.cap is None else float(service.timing.cap)
