"""`opsctl unlock`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Output, Settings
from opsctl.errors import NothingSelected, Refused


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
    said = fleet.collect(chosen)
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
    answers = fleet.each(
        chosen.only(locks),
        lambda host: call(host, "unlock", service, "--run", str(locks[host.name]["run"])),
    )
    if settings.form is not Output.text:
        data(
            {"schema_version": 1, "hosts": [{"host": h, "unlocked": True} for h in answers]},
            settings.form,
            each="hosts",
        )
    fleet.raise_lost(answers)
    talk(f"unlocked {service} on {', '.join(answers)}")
