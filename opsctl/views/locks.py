"""Who holds a service's lock, why, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.views.document import Said
from opsctl.views.figures import utc


def held(said: Mapping[str, Said]) -> dict[str, dict[str, Any]]:
    """Locks by host, as `collect` tells them."""
    return {
        host: service["lock"]
        for host, answer in said.items()
        if not isinstance(answer, OpsctlError)
        for service in answer.get("services") or ()
        if service.get("lock")
    }


def line(lock: Mapping[str, Any]) -> str:
    since = lock.get("since")
    when = f" since {utc(float(since))}" if since else ""
    return (
        f"locked by {lock.get('owner') or 'unknown'}{when}, "
        f"run {lock.get('run') or 'unknown'}: {lock.get('reason') or 'no reason given'}"
    )


def left_over(service: Mapping[str, Any]) -> bool:
    """Whether a service's lock is of a run that has ended while nobody watched it."""
    lock, run = service.get("lock") or {}, service.get("run") or {}
    return bool(lock) and lock.get("run") == run.get("run") and not run.get("active")
