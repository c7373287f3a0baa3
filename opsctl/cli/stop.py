"""`opsctl stop`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import agreed
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.views.plan import Step

# Draining takes the release's own time, and what is killed then dies slowly: freeing 350 GB.
LONGEST = 900.0


def stop(
    settings: Settings,
    change: Change,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE")],
) -> None:
    """Drain and stop services.

    Requests in flight may finish. `opsctl start` starts it again, and so does a reboot.
    """
    from opsctl.cli.locked import locked_call

    chosen = fleet.choose(settings, services)
    said = fleet.collect(chosen)
    fleet.raise_lost(said)
    steps = steps_of(said)
    if not agreed(steps, chosen, settings, change):
        return
    done = locked_call("stop", steps, chosen, change, timeout=LONGEST)
    show_done("stopped", done, settings)
    fleet.raise_lost(done)


def steps_of(said: dict[str, Any]) -> list[Step]:
    return [_step(name, service) for name, answer in said.items() for service in answer["services"]]


def _step(host: str, service: dict[str, Any]) -> Step:
    if service["state"] in ("inactive", "failed", "absent"):
        return Step(host, service["service"], "", f"is {service['state']}")
    return Step(host, service["service"], "stop", f"is {service['state']}")


def show_done(word: str, done: dict[str, Any], settings: Settings) -> None:
    good = [host for host, answer in done.items() if isinstance(answer, dict)]
    if settings.form is not Output.text:
        hosts = [{"host": host, "done": host in good} for host in done]
        data({"schema_version": 1, "hosts": hosts}, settings.form, each="hosts")
    elif good:
        talk(f"{word} on {', '.join(good)}")
