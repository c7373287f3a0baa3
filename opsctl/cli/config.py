"""`opsctl config show|validate`."""

from __future__ import annotations

import typer

app = typer.Typer(help="Show and check descriptions.", no_args_is_help=True, rich_markup_mode=None)
