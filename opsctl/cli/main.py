"""`opsctl`: the list of verbs. Each verb is a file of this folder."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import opsctl
from opsctl.cli import (
    config,
    deploy,
    hosts,
    lab,
    logs,
    remove,
    render,
    restart,
    rollback,
    start,
    status,
    stop,
    unlock,
    verify,
    watch,
)
from opsctl.cli.frame import Settings, framed

app = typer.Typer(
    name="opsctl",
    help=opsctl.__doc__,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich costs 60 ms that --help need not pay
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done or no change; 1 failed; 2 usage, or nothing matched; 3 changes "
    "pending or drift; 4 some hosts unreachable; 5 gate failed, rolled back; 6 gate failed, not "
    "rolled back; 7 lock held; 8 forecast does not fit; 130 interrupted, the host goes on.",
)

for module in (hosts, render, deploy, restart, stop, start, rollback, status, verify):
    app.command()(framed(getattr(module, module.__name__.rpartition(".")[2])))
for module in (watch, logs, remove, unlock):
    app.command()(framed(getattr(module, module.__name__.rpartition(".")[2])))
app.add_typer(config.app, name="config")
app.add_typer(lab.app, name="lab")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"opsctl {opsctl.__version__}")
        raise typer.Exit


@app.callback()
@framed
def root(
    ctx: typer.Context,
    settings: Settings,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run SGLang on bare-metal GPU hosts: deploy, watch, gate, restore."""
    ctx.obj = settings


def main(argv: list[str] | None = None) -> Any:
    """The console script. `--version` alone must not even wait for typer's parser."""
    given = sys.argv[1:] if argv is None else argv
    return app(args=given, prog_name="opsctl")
