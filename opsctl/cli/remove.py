"""`opsctl remove`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import agreed
from opsctl.cli.frame import Change, Settings
from opsctl.cli.stop import LONGEST, show_done
from opsctl.views.plan import Step


def remove(
    settings: Settings,
    change: Change,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE")],
) -> None:
    """Stop a service and delete it.

    Its unit and releases go, secrets too; its history is kept. Asks always; off a terminal
    it needs --yes. Model and engine stay where they are.
    """
    from opsctl.cli.locked import locked_call

    chosen = fleet.choose(settings, services)
    said = fleet.collect(chosen)
    fleet.raise_lost(said)
    steps = [_step(name, s) for name, answer in said.items() for s in answer["services"]]
    if not agreed(steps, chosen, settings, change, always=True):
        return
    done = locked_call("remove", steps, chosen, change, timeout=LONGEST)
    show_done("removed", done, settings)
    fleet.raise_lost(done)


def _step(host: str, service: dict[str, Any]) -> Step:
    if service["state"] == "absent":
        return Step(host, service["service"], "", "is not there")
    return Step(host, service["service"], "remove", f"is {service['state']}")
