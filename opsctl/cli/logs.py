"""`opsctl logs`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.console import serialized, talk, write
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError, Refused

# A healthy service may say nothing for days; only keepalives tell whether the host is there.
QUIET = 7 * 86400.0
LAST, EACH = 100, 30  # lines of this start; of each start, where all are shown

Entry = dict[str, Any]
Wanted = Callable[[Entry], bool]


def logs(
    settings: Settings,
    service: Annotated[str, typer.Argument(metavar="SERVICE")],
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Same as --limit HOST.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=1,
            metavar="N",
            help="Last lines shown: 100; with --all-starts 30 of each start.",
        ),
    ] = None,
    rank: Annotated[
        str | None, typer.Option("--rank", metavar="RANK", help="Only this rank, such as TP3.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only lines that match.")
    ] = None,
    all_starts: Annotated[
        bool, typer.Option("--all-starts", help="The end of each of the last 20 starts.")
    ] = False,
) -> None:
    """Show the journal of the current start.

    With --all-starts each start stands below a line that tells when it began.
    Control characters are made harmless. Ctrl-C ends it, here and on the host.
    """
    wanted = _keeper(rank or "", grep or "")
    limit = (host,) if host else settings.hosts
    chosen = fleet.choose(settings, [service], limit=limit)
    # A filter must see everything, or `-n 5 --rank TP3` finds five lines of other ranks.
    most = lines or (EACH if all_starts else LAST)
    asked = 0 if rank or grep else most
    arguments = [service, "--lines", str(asked), *(["--all-starts"] if all_starts else [])]
    several = len(chosen.names) > 1
    with fleet.opened(chosen) as reached:
        if follow:
            _follow(reached, [*arguments, "--follow"], wanted, settings, several)
            return
        shown = 0
        for name in chosen.names:
            found = last([e for e in _read(reached, name, arguments) if wanted(e)], most)
            shown += len(found)
            begun = None
            for line in found:
                if line.get("start") != begun:
                    begun = line["start"]
                    _head(line, settings)
                _write(line, settings, several=several)
    if not shown:
        talk(f"no line of {service} in this start" + (" matches" if rank or grep else ""))


def last(entries: list[Entry], most: int) -> list[Entry]:
    """The last `most` of each start, in order; entries of one start only tell no start."""
    kept: dict[int | None, list[Entry]] = {}
    for entry in entries:
        kept.setdefault(entry.get("start"), []).append(entry)
    return [entry for of_start in kept.values() for entry in of_start[-most:]]


def _keeper(rank: str, pattern: str) -> Wanted:
    from opsctl.views.logs import keeper

    try:
        return keeper(rank, pattern)
    except re.error as error:
        raise Refused(f"--grep {pattern} is no regular expression: {error}") from None


def _read(reached: fleet.Fleet, name: str, arguments: list[str]) -> Iterator[Entry]:
    """Records of one host, each with the host's name; the remote process ends with the iterator."""
    from opsctl.remote.onhost import follow

    host = reached.hosts[name]
    if isinstance(host, OpsctlError):
        raise host
    with closing(follow(host, "logs", *arguments, idle=QUIET)) as records:  # type: ignore[type-var]
        for record in records:
            yield {"host": name, **record}


def _follow(
    reached: fleet.Fleet,
    arguments: list[str],
    wanted: Wanted,
    settings: Settings,
    several: bool,
) -> None:
    """All hosts' lines as they come, until Ctrl-C, which here is the ordinary end."""
    from opsctl.cli.streams import merged

    sources = {name: partial(_read, reached, name, arguments) for name in reached.chosen.names}
    try:
        with merged(sources, stop=reached.close) as lines:
            for _, line in lines:
                if isinstance(line, OpsctlError):
                    if not several:
                        raise line
                    talk(f"{line.host}: {line.message}")
                elif wanted(line):
                    _write(line, settings, several=several)
    except KeyboardInterrupt:
        talk()


def _head(entry: Entry, settings: Settings) -> None:
    from opsctl.views.logs import head

    if settings.form is Output.text:
        write(head(entry) + "\n")


def _write(entry: Entry, settings: Settings, *, several: bool) -> None:
    from opsctl.views.logs import as_json, as_text

    if settings.form is Output.text:
        write(as_text(entry, several=several) + "\n")
    elif settings.form is Output.yaml:
        write("---\n" + serialized(as_json(entry), Output.yaml))
    else:
        write(serialized(as_json(entry), Output.jsonl))
