"""`opsctl remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import agreed, watch_limit
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.errors import OpsctlError, Refused
from opsctl.views.plan import Step, pending

if TYPE_CHECKING:
    from opsctl.remote.host import Host

# Draining takes the release's own time, and what is killed then dies slowly: freeing 350 GB.
LONGEST = 900.0


def remove(
    settings: Settings,
    change: Change,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE")],
) -> None:
    """Stop a service and delete it.

    Its unit and releases go, secrets too; its history is kept. Asks always; off a terminal it
    needs --yes. Model and engine stay where they are.
    """
    if change.detach:
        raise Refused("remove is watched to its end: there is nothing to detach from")
    limit = watch_limit(change) or LONGEST
    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        fleet.raise_lost(said)
        steps = [_step(name, s) for name, answer in said.items() for s in answer["services"]]
        if not agreed(steps, chosen, settings, change, always=True):
            return
        work: dict[str, list[str]] = {}
        for step in pending(steps):
            work.setdefault(step.host, []).append(step.service)
        done = reached.each(
            lambda host: [_remove(host, name, change.reason, limit) for name in work[host.name]],
            among=list(work),
            # Later than the hosts' own limit: what gives up there gives its lock back.
            timeout=limit * max(map(len, work.values()), default=1) + fleet.ANSWER,
        )
    _show(work, done, settings)
    fleet.raise_lost(done)


def _step(host: str, service: dict[str, Any]) -> Step:
    if service["state"] == "absent":
        return Step(host, service["service"], "", "is not there")
    return Step(host, service["service"], "remove", f"is {service['state']}")


def _remove(host: Host, service: str, reason: str, timeout: float) -> dict[str, Any]:
    from opsctl.remote.onhost import call
    from opsctl.rollout.run import new_run, utc, whoami
    from opsctl.rollout.steps import Order, lock

    why = reason or "opsctl remove"
    order = Order(new_run(), whoami(), why, utc(), observer=lambda *event: None)
    lock(host, service, order)
    try:
        return call(host, "remove", service, timeout=timeout)
    finally:
        call(host, "unlock", service, "--run", order.run)


def _show(work: dict[str, list[str]], done: dict[str, Any], settings: Settings) -> None:
    results = [
        {"host": host, "service": name, "removed": not isinstance(done[host], OpsctlError)}
        for host, names in work.items()
        for name in names
    ]
    if settings.form is not Output.text:
        data({"schema_version": 1, "results": results}, settings.form, each="results")
        return
    for result in results:
        if result["removed"]:
            talk(f"{result['host']} {result['service']}: removed; its history is kept")
