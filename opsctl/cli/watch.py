"""`opsctl watch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import fleet
from opsctl.cli.ending import raise_for
from opsctl.cli.frame import Settings
from opsctl.errors import Interrupted, NothingSelected, OpsctlError

if TYPE_CHECKING:
    from opsctl.inventory import BookEntry

# Seconds of silence after which a guard's events are given up; it speaks every 10 s (startup.py).
SILENCE = 120.0


def watch(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
) -> None:
    """Watch runs that are going on.

    From their beginning: a restart that was detached from, or somebody else's. Ends as the
    run ends (0, 5, 6); Ctrl-C only ends the watching.
    """
    chosen = fleet.choose(settings, services)
    said = fleet.collect(chosen)
    runs = running(said)
    if not runs:
        fleet.raise_lost(said)
        raise NothingSelected("no run is going on", hint="opsctl status")
    entries = {entry.name: entry for entry in chosen.hosts}
    results = follow_all(runs, entries, settings)
    raise_for(results)
    fleet.raise_lost(said)


def running(said: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Names of active runs by host and service."""
    return {
        (name, service["service"]): service["run"]["run"]
        for name, answer in said.items()
        if not isinstance(answer, OpsctlError)
        for service in answer["services"]
        if (service.get("run") or {}).get("active")
    }


def follow_all(
    runs: dict[tuple[str, str], str], entries: dict[str, BookEntry], settings: Settings
) -> dict[tuple[str, str], dict[str, Any]]:
    """Show all runs until each has its result. Results by host and service."""
    from opsctl.cli.streams import merged
    from opsctl.cli.watching import watching

    sources = {
        f"{host} {service}": (lambda h=host, s=service, r=run: _events(entries[h], s, r))
        for (host, service), run in runs.items()
    }
    results: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        with watching(settings) as watcher, merged(sources) as events:
            for name, event in events:
                if isinstance(event, OpsctlError):
                    raise event
                host, _, service = name.partition(" ")
                watcher.see(host, service, event)
                if event.get("event") == "result":
                    results[host, service] = event
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped watching; the hosts go on by themselves", hint="opsctl watch"
        ) from None
    return results


def _events(entry: BookEntry, service: str, run: str) -> Iterator[dict[str, Any]]:
    from contextlib import closing

    from opsctl.remote.onhost import follow

    host = fleet.connect(entry)
    try:
        with closing(follow(host, "follow", service, run, idle=SILENCE)) as events:  # type: ignore[type-var]
            yield from events
    finally:
        host.close()
