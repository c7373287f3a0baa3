"""`opsctl unlock`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import agreed, watch_limit
from opsctl.cli.console import data, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.errors import NothingSelected, OpsctlError, Refused
from opsctl.views.plan import Step


def unlock(
    settings: Settings,
    change: Change,
    service: Annotated[str, typer.Argument(metavar="SERVICE")],
) -> None:
    """Take the lock of a service away.

    Shows whose it is and why. Asks always, since a run may be at work under it; off a terminal it
    needs --yes. A lock whose run has ended is taken away by the next run itself; this is for the
    others. It stands in the host's history.
    """
    from opsctl.remote.onhost import call
    from opsctl.rollout.run import whoami
    from opsctl.views.locks import held, line

    if change.detach:
        raise Refused("unlock is done at once: there is nothing to detach from")
    limit = watch_limit(change) or fleet.ANSWER
    chosen = fleet.choose(settings, [service])
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        locks = held(said)
        fleet.raise_lost(said)
        if not locks:
            raise NothingSelected(f"{service} is not locked on {', '.join(chosen.names)}")
        steps = [Step(host, service, "unlock", line(lock)) for host, lock in locks.items()]
        if not agreed(steps, chosen, settings, change, always=True):
            return
        who = ("--by", whoami(), "--reason", change.why)
        done = reached.each(
            lambda host: call(
                host, "unlock", service, "--run", str(locks[host.name]["run"]), *who, timeout=limit
            ),
            among=list(locks),
            timeout=limit,
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
