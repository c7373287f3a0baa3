"""`opsctl memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opsctl.cli import fleet
from opsctl.cli.console import data, show
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError

if TYPE_CHECKING:
    from opsctl.remote.host import Host
    from opsctl.views.memory import Said, Told


def memory(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Compare memory: forecast, logged, shown.

    Of every rank its tokens, pools, weights and the rest of its GPU, its process, and of the host
    what is left; and why the three differ. Reads each host once; changes nothing. Ends with 0; 1
    if a rank differs from its forecast, as the gate `ranks` says; 4 if a host cannot be reached.
    """
    from opsctl.views.memory import document, drawing

    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.each(lambda host: looked(host, chosen.services_of(host.name)))
    if settings.form is Output.text:
        show(drawing(said), settings)
    else:
        data(document(said), settings.form, each="hosts")
    fleet.raise_lost(said)
    if wrong := differing(said):
        raise OpsctlError(
            "\n".join(["ranks differ from their forecast", *wrong]),
            hint=f"opsctl logs {wrong[0].split()[1]}",
        )


def looked(host: Host, services: tuple[str, ...]) -> list[Told]:
    """All services of a host, from one read of it."""
    from opsctl.forecast.columns import columns
    from opsctl.forecast.differences import explained
    from opsctl.remote.onhost import call

    wanted = [part for name in services for part in ("--service", name)]
    answer = call(host, "collect", *wanted, "--memory", timeout=fleet.ANSWER)
    found = [columns(answer, service) for service in answer["services"]]
    return [(one, explained(one, answer)) for one in found]


def differing(said: Said) -> list[str]:
    """ "HOST SERVICE: what the gate says" """
    return [
        f"{host} {one.service}: {one.check['detail']}"
        for host, found in said.items()
        if not isinstance(found, OpsctlError)
        for one, _ in found
        if one.differs and one.check is not None
    ]
