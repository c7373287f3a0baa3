"""`opsctl plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsctl.cli import fleet, planfiles
from opsctl.cli.console import talk
from opsctl.cli.frame import Settings, worded
from opsctl.errors import ChangesPending

OVERRIDE = typer.Option(
    "--override-forecast",
    metavar="REASON",
    help="Deploy even what the forecast says does not fit; the reason is kept.",
)
CANARY = typer.Option("--canary", metavar="HOST", help="The host that goes first.")


def plan(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 3 if there are changes.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the plan, for `opsctl deploy FILE`."),
    ] = None,
    override_forecast: Annotated[str | None, OVERRIDE] = None,
    canary: Annotated[str, CANARY] = "",
) -> None:
    """Say what `deploy` would do, and what would come of it.

    Changes nothing and takes no lock. Of every host: what differs, what restarts and why, the
    memory it will take beside what it takes now, what is known to go wrong, and how long it takes.

    Ends with 0; 3 with --exit-code if there are changes; 8 if a forecast does not fit; 4 if a host
    cannot be reached; 7 if a run is at work there; 1 if something would keep a release from
    starting. With --out, a plan that cannot be carried out is not written.
    """
    from opsctl.cli.planning import describe, look_ahead, show_plan, warn
    from opsctl.views.plan import pending

    if out is not None:
        planfiles.writable(out)
    override = worded("--override-forecast", override_forecast)
    chosen, described = describe(settings, services)
    with fleet.opened(chosen) as reached:
        found = look_ahead(reached, described, override, canary)
    steps = show_plan(found, settings)
    warn(found)
    if error := found.error():
        if out is not None:
            talk(f"not written: {out}: the plan cannot be carried out")
        raise error
    if out is not None:
        asked = planfiles.asked(settings, services or (), override, canary)
        planfiles.write(out, planfiles.of(found, asked))
        talk(f"written: {out}; carry it out with: opsctl deploy {out}")
    if exit_code and (wanted := pending(steps)):
        raise ChangesPending(f"{len(wanted)} changes pending")
