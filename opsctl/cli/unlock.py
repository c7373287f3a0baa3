"""`opsctl unlock`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Output, Settings
from opsctl.errors import NothingSelected, OpsctlError, Refused


def unlock(
    settings: Settings,
    service: Annotated[str, typer.Argument(metavar="SERVICE")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
) -> None:
    """Take the lock of a service away.

    Shows whose it is and why; needs --yes. A lock whose run has ended is taken away by the
    next run itself; this is for the others.
    """
    from opsctl.remote.onhost import call
    from opsctl.views.locks import held, line

    chosen = fleet.choose(settings, [service])
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        locks = held(said)
        for host, lock in locks.items():
            talk(line(host, service, lock))
        fleet.raise_lost(said)
        if not locks:
            raise NothingSelected(f"{service} is not locked on {', '.join(chosen.names)}")
        if not yes:
            raise Refused(
                "a run may be at work under this lock",
                hint=f"opsctl status {service}, then: opsctl unlock {service} --yes",
            )
        done = reached.each(
            lambda host: call(host, "unlock", service, "--run", str(locks[host.name]["run"])),
            among=list(locks),
        )
    _show(done, service, settings)
    fleet.raise_lost(done)


def _show(done: dict[str, Any], service: str, settings: Settings) -> None:
    good = [host for host, answer in done.items() if not isinstance(answer, OpsctlError)]
    if settings.form is Output.text:
        talk(f"unlocked {service} on {', '.join(good) or 'no host'}")
        return
    hosts = [{"host": host, "unlocked": host in good} for host in done]
    data({"schema_version": 1, "hosts": hosts}, settings.form, each="hosts")
