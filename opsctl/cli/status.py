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

    Unit, release, health, ranks, KV cache, host pools, memory; also of services that stand on
    a host and are not described (any more). A host without a described service is asked if
    --limit names it; `opsctl hosts` asks them all. Changes nothing. Ends with 4
    if a host cannot be reached; else with 0, whatever the services do: `opsctl verify`
    judges.
    """
    chosen = fleet.choose(settings, services, bare=bool(settings.hosts))
    with fleet.opened(chosen) as reached:
        said = reached.collect() if services else reached.collect_everything()
    if settings.form is Output.text:
        from opsctl.views.status import table

        show(table(said), settings)
    else:
        from opsctl.views.document import document

        data(document(said), settings.form, each="hosts")
    fleet.raise_lost(said)
