"""`opsctl status`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings


def status(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Show each service in one line.

    Unit, release, health, ranks, KV cache, host pools, memory. Changes nothing. Ends with 4
    if a host cannot be reached; else with 0, whatever the services do: `opsctl verify`
    judges.
    """
    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.collect()
    if settings.form is Output.text:
        from opsctl.views.status import table

        show(table(said), settings)
    else:
        from opsctl.views.document import document

        data(document(said), settings.form, each="hosts")
    fleet.raise_lost(said)
