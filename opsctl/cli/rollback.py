"""`opsctl rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli.frame import Change, Settings


def rollback(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Go back to the previous release.

    One host at a time, gated. The previous release needs no name: every host knows its own.
    """
    from opsctl.cli.rolling import roll

    roll("rollback", services, settings, change)
