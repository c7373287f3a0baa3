"""`opsctl stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from opsctl.cli.frame import Change, Settings


def stop(
    settings: Settings,
    change: Change,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE")],
) -> None:
    """Drain and stop services.

    Requests in flight may finish. `opsctl start` starts it again, and so does a reboot.
    """
    from opsctl.cli.rolling import roll

    roll("stop", services, settings, change)
