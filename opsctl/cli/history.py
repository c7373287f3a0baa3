"""`opsctl history`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings

if TYPE_CHECKING:
    from opsctl.remote.host import Host


def history(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="Last entries of each service.")
    ] = 10,
) -> None:
    """Show what was done: when, by whom, why, and how it ended.

    Deployments, restarts, stops, rollbacks, removals, files that were staged without a restart,
    locks that somebody else took away. With --limit HOST also of a service that is not described
    (any more). Changes nothing.
    """
    chosen = fleet.choose(settings, services, undescribed=bool(services))
    with fleet.opened(chosen) as reached:
        said = reached.each(lambda host: _asked(host, chosen.services_of(host.name), lines))
    if settings.form is Output.text:
        from opsctl.views.history import table

        show(table(said), settings)
    else:
        from opsctl.views.history import document

        data(document(said), settings.form, each="entries")
    fleet.raise_lost(said)


def _asked(host: Host, services: tuple[str, ...], lines: int) -> list[dict[str, Any]]:
    from opsctl.remote.onhost import call

    answers = [call(host, "history", name, "--lines", str(lines)) for name in services]
    return [{"service": a["service"], **entry} for a in answers for entry in a["entries"]]
