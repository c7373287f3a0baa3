"""`opsctl restart`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli.frame import Change, Settings


def restart(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Restart services, one host at a time.

    Drains, starts, gates; if a gate fails twice, restores the last confirmed release.

    Waits as long as anything moves in the start, not for a fixed time. Ctrl-C and --timeout
    only end the watching: the host goes on by itself, and `opsctl watch` shows it again.
    """
    from opsctl.cli.rolling import roll

    roll("restart", services, settings, change)
