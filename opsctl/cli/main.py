"""`opsctl`: the list of verbs. Each verb is a file of this folder, and is imported if it may be
meant: what a command does not run shall not slow it down."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

import opsctl
from opsctl.cli.frame import Settings, framed

# As --help shows them.
VERBS = (
    *("hosts", "forecast", "render", "plan", "deploy", "restart", "stop", "start", "rollback"),
    *("status", "memory", "verify", "watch", "logs", "remove", "unlock", "import"),
)
FILES = {"import": "importing"}  # what a verb's file and function are called, where not as itself
GROUPS = ("config", "catalog", "lab")  # verbs with verbs of their own


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"opsctl {opsctl.__version__}")
        raise typer.Exit


def root(
    ctx: typer.Context,
    settings: Settings,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run SGLang on bare-metal GPU hosts: deploy, watch, gate, restore."""
    ctx.obj = settings


@cache
def built(verbs: tuple[str, ...] = (*VERBS, *GROUPS)) -> typer.Typer:
    """The command with these verbs."""
    app = typer.Typer(
        name="opsctl",
        help=opsctl.__doc__,
        no_args_is_help=True,
        rich_markup_mode=None,  # rich costs 60 ms that --help need not pay
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: 0 done or no change; 1 failed; 2 usage, or nothing matched; 3 changes "
        "pending or drift; 4 some hosts unreachable; 5 gate failed, rolled back; 6 gate failed, "
        "not rolled back; 7 lock held; 8 forecast does not fit; 130 interrupted, the host goes on.",
    )
    app.callback()(framed(root))
    for verb in verbs:
        name = FILES.get(verb, verb)
        module = import_module(f"opsctl.cli.{name}")
        if verb in GROUPS:
            app.add_typer(module.app, name=verb)
        else:
            app.command(name=verb)(framed(getattr(module, name)))
    return app


def meant(argv: Collection[str]) -> tuple[str, ...]:
    """The verbs that stand among the arguments, some of which may be an option's value; all of
    them where there is none (help, a typing mistake), or a shell asks what there is."""
    everything = (*VERBS, *GROUPS)
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    return tuple(v for v in everything if v in argv and not completing) or everything


def main(argv: list[str] | None = None) -> Any:
    """The console script. `--version` alone must not even wait for typer's parser."""
    given = sys.argv[1:] if argv is None else argv
    return built(meant(given))(args=given, prog_name="opsctl")
