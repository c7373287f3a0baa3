"""`opsctl remove`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import agreed, watch_limit
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.errors import NothingSelected, OpsctlError, Refused
from opsctl.views.plan import Step, pending
from opsctl.views.undescribed import by_hand, of_other_hands

if TYPE_CHECKING:
    from opsctl.inventory import Selected
    from opsctl.remote.host import Host

# Draining takes the release's own time, and what is killed then dies slowly: freeing 350 GB.
LONGEST = 900.0

ETC = "/etc/opsctl"  # on the host: its releases (docs/architecture.md)


def remove(
    settings: Settings,
    change: Change,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE")],
) -> None:
    """Stop a service and delete it.

    With --limit HOST also one that stands there and is not described (any more).
    Its unit and releases go, secrets too; its history is kept. Asks always; off a terminal it
    needs --yes. Model and engine stay where they are.
    """
    if change.detach:
        raise Refused("remove is watched to its end: there is nothing to detach from")
    limit = watch_limit(change) or LONGEST
    chosen = fleet.choose(settings, services, undescribed=True)
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        fleet.raise_lost(said)
        steps = _steps(said, _leftovers(reached, said))
        _refuse_unknown(steps, chosen)
        if not agreed(steps, chosen, settings, change, always=True):
            return
        work: dict[str, list[str]] = {}
        for step in pending(steps):
            work.setdefault(step.host, []).append(step.service)
        done = reached.each(
            lambda host: [_remove(host, name, change.why, limit) for name in work[host.name]],
            among=list(work),
            # Later than the hosts' own limit: what gives up there gives its lock back.
            timeout=limit * max(map(len, work.values()), default=1) + fleet.ANSWER,
        )
    _show(work, done, settings)
    fleet.raise_lost(done)


def _leftovers(reached: fleet.Fleet, said: dict[str, Any]) -> dict[str, list[str]]:
    """Services without a unit that have files of ours: their first deployment was refused after
    a release had been written."""
    absent = {
        name: [s["service"] for s in answer["services"] if s["state"] == "absent"]
        for name, answer in said.items()
    }

    def ask(host: Host) -> list[str]:
        return [
            name for name in absent[host.name] if host.run(["test", "-e", f"{ETC}/{name}"]).rc == 0
        ]

    found = reached.each(ask, among=[name for name, services in absent.items() if services])
    fleet.raise_lost(found)
    return {name: names for name, names in found.items() if isinstance(names, list)}


def _steps(said: dict[str, Any], leftovers: dict[str, list[str]]) -> list[Step]:
    """Raises Refused for a unit of other hands: the host would refuse it later."""
    steps = []
    for host, answer in said.items():
        for service in answer["services"]:
            name, state = service["service"], service["state"]
            if name in leftovers.get(host, ()):
                steps.append(Step(host, name, "remove", f"no unit, but files in {ETC}/{name}"))
            elif state == "absent":
                steps.append(Step(host, name, "", "is not there"))
            elif of_other_hands(service):
                raise Refused(
                    f"{host}: {service['unit']} was not written by opsctl",
                    hint=f"by hand, on {host}: {by_hand(service)}",
                )
            else:
                steps.append(Step(host, name, "remove", f"is {state}"))
    return steps


def _refuse_unknown(steps: list[Step], chosen: Selected) -> None:
    """Raises NothingSelected for a service that is neither described nor on any host: a typing
    mistake must not look like a removal."""
    described = {name for entry in chosen.hosts for name in entry.services}
    there = described | {step.service for step in pending(steps)}
    for step in steps:
        if step.service not in there:
            raise NothingSelected(
                f"there is no service {step.service}: neither described for, nor on, "
                f"{', '.join(chosen.names)}",
                hint=f"opsctl status --limit {','.join(chosen.names)}",
            )


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
