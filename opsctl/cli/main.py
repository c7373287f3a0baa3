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
from opsctl.cli.usage import Verb, Verbs

# As --help shows them.
VERBS = (
    *("hosts", "forecast", "render", "plan", "deploy", "restart", "stop", "start", "rollback"),
    *(
        "status",
        "doctor",
        "memory",
        "verify",
        "watch",
        "logs",
        "history",
        "remove",
        "unlock",
        "import",
    ),
)
FILES = {"import": "importing"}  # what a verb's file and function are called, where not as itself
KEY = "_OPSCTL_COMPLETED_KEY"  # of KEY=VALUE, for completing.py
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
        cls=Verbs,
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
    groups = [group.typer_instance for group in app.registered_groups]
    for one in (one for part in (app, *groups) if part for one in part.registered_commands):
        one.cls = Verb
    return app


def meant(argv: Collection[str]) -> tuple[str, ...]:
    """The verbs that stand among the arguments, some of which may be an option's value; all of
    them where there is none (help, a typing mistake, a shell that asks which there are)."""
    everything = (*VERBS, *GROUPS)
    if any(name.endswith("_COMPLETE") for name in os.environ):
        argv = _typed()
    return tuple(v for v in everything if v in argv) or everything


def _typed() -> list[str]:
    """What stands before the word that a shell completes, as typer's scripts tell it."""
    if "COMP_WORDS" not in os.environ:
        return os.environ.get("_TYPER_COMPLETE_ARGS", "").split(" ")[1:-1]
    told = os.environ["COMP_WORDS"].replace("\n", " ").split(" ")
    at = int(os.environ.get("COMP_CWORD") or len(told) - 1)
    words, key = unbroken(told[: at + 1])
    os.environ |= {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    os.environ[KEY] = key
    return words[1:-1]


def unbroken(words: list[str]) -> tuple[list[str], str]:
    """bash takes KEY=VALUE for three words: one again, but for the last, of which bash wants the
    value alone; its KEY is apart."""
    found: list[str] = []
    for word in words:
        if word == "=" and found:
            found[-1] += "="
        elif found and found[-1].endswith("=") and not found[-1].startswith("="):
            found[-1] += word
        else:
            found.append(word)
    key, equals, value = found[-1].partition("=")
    return ([*found[:-1], value], key) if equals and "=" in words[-2:] else (found, "")


def main(argv: list[str] | None = None) -> Any:
    """The console script. `--version` alone must not even wait for typer's parser."""
    given = sys.argv[1:] if argv is None else argv
    return built(meant(given))(args=given, prog_name="opsctl")
