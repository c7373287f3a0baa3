"""`opsctl watch`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.frame import Settings
from opsctl.errors import NothingSelected, OpsctlError
from opsctl.views.locks import left_over


def watch(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Watch runs that are going on.

    From their beginning: a restart that was detached from, or somebody else's. One that has ended
    meanwhile is shown, too, and its lock given back. Ends as the run ends (0, 5, 6); Ctrl-C only
    ends the watching.
    """
    from opsctl import rollout
    from opsctl.cli.rolling import conclude
    from opsctl.cli.watching import watching

    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        runs = running(said)
        if not runs:
            fleet.raise_lost(said)
            raise NothingSelected("no run is going on", hint="opsctl status")
        for run in runs:
            with watching(settings) as watcher:
                results = rollout.resume(reached.reached(), said, run, observer=watcher.see)
            conclude(results, settings)
    fleet.raise_lost(said)


def running(said: dict[str, Any]) -> list[str]:
    """Names of the runs that are at work on any host, or that ended while nobody watched: those
    still hold their lock."""
    return sorted(
        {
            service["run"]["run"]
            for answer in said.values()
            if not isinstance(answer, OpsctlError)
            for service in answer["services"]
            if (service.get("run") or {}).get("active") or left_over(service)
        }
    )
