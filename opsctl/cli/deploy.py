"""`opsctl deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli.frame import Change, Settings


def deploy(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Bring hosts to their descriptions.

    Checks descriptions, plans, asks, stages, then host by host restarts, gates, and
    confirms or restores.

    Expects hosts that are prepared: `ansible-playbook deploy.yml` also installs the engine,
    makes the user and checks driver and model, and does the same as this command
    afterwards.
    """
    raise NotImplementedError
