"""`opsctl hosts`."""

from __future__ import annotations

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings


def hosts(settings: Settings) -> None:
    """Show each host: system, GPUs, memory.

    One line a host: address, driver, services, memory that is available. Changes nothing.
    """
    chosen = fleet.choose(settings, bare=True)
    with fleet.opened(chosen) as reached:
        said = reached.collect_everything()
    if settings.form is Output.text:
        from opsctl.views.hosts import table

        addresses = {e.name: str(e.connection.get("ansible_host", e.name)) for e in chosen.hosts}
        show(table(said, addresses), settings)
    else:
        from opsctl.views.document import document

        data(document(said), settings.form, each="hosts")
    fleet.raise_lost(said)
