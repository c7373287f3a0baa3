"""`opsctl lab`: thin; the lab itself is opsctl.lab."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from opsctl.cli.console import talk, write
from opsctl.cli.frame import framed

app = typer.Typer(
    help="Boot real hosts on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

HostName = Annotated[str, typer.Argument(metavar="HOST", help="h1, h2, …")]


class Cut(StrEnum):
    down = "down"
    drop = "drop"
    reject = "reject"


@app.command()
@framed
def up(
    count: Annotated[int, typer.Argument(metavar="N", min=1, max=50, help="Number of hosts.")],
    version: Annotated[
        str, typer.Option("--engine", metavar="VERSION", help="SGLang version they rehearse.")
    ] = "0.5.9",
) -> None:
    """Boot N hosts; print the inventory's path.

    Real Debian hosts with systemd, journald and sshd, in which a stand-in engine rehearses. Needs
    root. Hosts that run already stay, and so do edits of the inventory.
    """
    from opsctl import lab

    write(f"{lab.up(count, version)}\n")


@app.command()
@framed
def down() -> None:
    """Stop all hosts and forget their disks."""
    from opsctl import lab

    lab.down()


@app.command()
@framed
def status() -> None:
    """Show each host in one line."""
    from opsctl import lab

    write(lab.status())


@app.command(
    context_settings={
        "ignore_unknown_options": True,  # they belong to the command on the host
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    }
)
@framed
def ssh(
    host: HostName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A shell, if none is given.")
    ] = None,
) -> None:
    """Run a command on a host; ends with its exit code."""
    from opsctl import lab

    raise typer.Exit(lab.ssh(host, command or []))


@app.command()
@framed
def scenario(
    host: HostName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A packaged one, or a file.")],
) -> None:
    """Choose what a host's engine plays next."""
    from opsctl import lab

    when = lab.scenario(host, name)
    talk(f"{host} plays {name} from its next start on" + (f", when {when}" if when else ""))


@app.command()
@framed
def cut(
    host: HostName,
    how: Annotated[
        Cut, typer.Argument(help="Cable pulled, packets dropped, or connections refused.")
    ] = Cut.down,
) -> None:
    """Cut a host off the network."""
    from opsctl import lab

    lab.drill("cut", host, how.value)


def _drill(verb: str, text: str) -> Callable[..., None]:
    def drill(host: HostName) -> None:
        from opsctl import lab

        lab.drill(verb, host)

    drill.__doc__ = text
    return drill


for _verb, _text in (
    ("mend", "Undo a cut."),
    ("freeze", "Let a host hang: it accepts, and answers nothing."),
    ("thaw", "Undo a freeze."),
    ("kill", "Cut a host's power; its disk is kept."),
    ("stop", "Power a host off in good order."),
    ("start", "Boot a host again with the disk it had."),
):
    app.command(_verb)(framed(_drill(_verb, _text)))
