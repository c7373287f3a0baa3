"""`opsctl start`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli.frame import Change, Settings


def start(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Start services that are stopped.

    Gates them as a restart does. What runs already is left alone.
    """
    from opsctl.cli.rolling import roll

    roll("start", services, settings, change)
