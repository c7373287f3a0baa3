"""One verb of the ground floor on each host under the service's lock, and the lock given back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opsctl.cli import fleet
from opsctl.cli.changing import owner
from opsctl.cli.frame import Change
from opsctl.errors import OpsctlError
from opsctl.views.plan import Step, pending

if TYPE_CHECKING:
    from opsctl.inventory import Selected
    from opsctl.remote.host import Host


def new_run() -> str:
    """A run's name: sorts by time, cannot meet another operator's."""
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(3)


def locked_call(
    verb: str, steps: Sequence[Step], chosen: Selected, change: Change, *, timeout: float
) -> dict[str, dict[str, Any] | OpsctlError]:
    """Answers by host; the first error of a host ends its work. Raises nothing for a host."""
    run = new_run()
    work: dict[str, list[str]] = {}
    for step in pending(steps):
        work.setdefault(step.host, []).append(step.service)

    def do(host: Host) -> dict[str, Any]:
        return {name: _one(host, verb, name, run, change, timeout) for name in work[host.name]}

    return fleet.each(chosen.only(work), do, timeout=timeout * max(map(len, work.values())))


def _one(
    host: Host, verb: str, service: str, run: str, change: Change, timeout: float
) -> dict[str, Any]:
    from opsctl.remote.onhost import call

    why = change.reason or f"opsctl {verb}"
    call(host, "lock", service, "--owner", owner(), "--reason", why, "--run", run)
    try:
        return call(host, verb, service, timeout=timeout)
    finally:
        call(host, "unlock", service, "--run", run)
