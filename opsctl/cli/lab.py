"""`opsctl lab`: thin; the lab itself is opsctl.lab."""

from __future__ import annotations

import typer

app = typer.Typer(help="Real hosts on this machine.", no_args_is_help=True, rich_markup_mode=None)
