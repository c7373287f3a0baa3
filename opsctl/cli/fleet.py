"""What every verb does with hosts: choose them, ask them all at once, say which ones are silent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from opsctl.cli.frame import Settings
from opsctl.errors import OpsctlError, Unreachable

if TYPE_CHECKING:
    from opsctl.inventory import BookEntry, Selected
    from opsctl.remote.host import Host

T = TypeVar("T")

# Seconds that hosts have for one compound read: a login, one process, health probes of 10 s.
ANSWER = 120.0


def choose(
    settings: Settings,
    services: Sequence[str] | None = None,
    *,
    bare: bool = False,
    limit: Sequence[str] | None = None,
) -> Selected:
    """The hosts and services that a command means, by the cached address book."""
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    book = inventory.book(path, cache=not settings.no_cache)
    return inventory.select(
        book, services or (), settings.hosts if limit is None else limit, bare=bare
    )


def collect(chosen: Selected) -> dict[str, Any]:
    """What each host says about itself and the chosen services, health probed."""

    def ask(host: Host) -> dict[str, Any]:
        from opsctl.remote.onhost import call

        services = [part for name in chosen.services_of(host.name) for part in ("--service", name)]
        return call(host, "collect", *services, "--probe")

    return each(chosen, ask)


def each(
    chosen: Selected, ask: Callable[[Host], T], *, timeout: float = ANSWER
) -> dict[str, T | OpsctlError]:
    """Ask all chosen hosts at once, each over one connection; an error stands for its host."""
    from opsctl.remote import fanout

    entries = {entry.name: entry for entry in chosen.hosts}

    def work(name: str) -> T:
        host = connect(entries[name])
        try:
            return ask(host)
        finally:
            host.close()

    said: dict[str, T | OpsctlError] = {}
    for outcome in fanout.each(chosen.names, work, timeout=timeout):
        if outcome.error is not None:
            outcome.error.host = outcome.error.host or outcome.name
            said[outcome.name] = outcome.error
        else:
            said[outcome.name] = cast(T, outcome.value)
    return said


def connect(entry: BookEntry) -> Host:
    """The host; nothing is opened before the first command. Raises SpecError for what opsctl
    cannot honour in its connection variables."""
    from opsctl import remote
    from opsctl.remote.target import resolve

    return remote.connect(resolve(entry.name, entry.connection))


def raise_lost(said: Mapping[str, Any]) -> None:
    """Ends the command for hosts that gave an error, after the others have been shown.

    Raises Unreachable (exit 4) if any host could not be reached, else the first host's own error.
    """
    lost = {name: answer for name, answer in said.items() if isinstance(answer, OpsctlError)}
    if not lost:
        return
    if len(lost) == 1:
        raise next(iter(lost.values()))
    lines = [f"{len(lost)} of {len(said)} hosts gave no answer"]
    lines += [f"{name}: {error.message}" for name, error in lost.items()]
    silent = any(isinstance(error, Unreachable) for error in lost.values())
    raise (Unreachable if silent else OpsctlError)("\n".join(lines))
