"""What every verb does with hosts: choose them, ask them all at once, say which ones are silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from opsctl.cli.frame import Settings
from opsctl.errors import OpsctlError, SpecError, Unreachable

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
    undescribed: bool = False,
    limit: Sequence[str] | None = None,
) -> Selected:
    """The hosts and services that a command means, by the cached address book."""
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    book = inventory.book(path, cache=not settings.no_cache)
    chosen = inventory.select(
        book,
        services or (),
        settings.hosts if limit is None else limit,
        bare=bare,
        undescribed=undescribed,
    )
    chosen.must_be_read()
    return chosen


def connect(entry: BookEntry) -> Host:
    """The host; nothing is opened before the first command. Raises SpecError for what opsctl
    cannot honour in its connection variables."""
    from opsctl import remote
    from opsctl.remote.target import resolve

    return remote.connect(resolve(entry.name, entry.connection))


@dataclass(frozen=True)
class Fleet:
    """The chosen hosts, one connection each for the whole command."""

    chosen: Selected
    hosts: dict[str, Host | OpsctlError]

    def each(
        self,
        ask: Callable[[Host], T],
        *,
        among: Sequence[str] | None = None,
        timeout: float = ANSWER,
    ) -> dict[str, T | OpsctlError]:
        """Ask hosts (`among` them) at once; an error stands for its host."""
        from opsctl.remote import fanout

        def work(name: str) -> T:
            host = self.hosts[name]
            if isinstance(host, OpsctlError):
                raise host
            return ask(host)

        names = self.chosen.names if among is None else among
        return _by_name(fanout.each(names, work, timeout=timeout))

    def collect(self) -> dict[str, Any]:
        """What each host says about itself and the chosen services, health probed."""
        return self.each(lambda host: _collected(host, self.chosen.services_of(host.name)))

    def collect_everything(self) -> dict[str, Any]:
        """What each host says about itself and all that it has, described or not; what is
        described and not there is "absent"."""
        from opsctl.views.undescribed import marked

        def ask(host: Host) -> dict[str, Any]:
            described = self.chosen.services_of(host.name)
            answer = _collected(host, ())
            found = list(answer["services"])
            there = {service["service"] for service in found}
            if missing := [name for name in described if name not in there]:
                found += _collected(host, missing)["services"]
            found.sort(key=lambda service: str(service["service"]))
            return marked(host.name, {**answer, "services": found}, described)

        return self.each(ask)

    def close(self) -> None:
        """Ends every connection, and with it what still runs over it, from any thread."""
        for host in self.reached().values():
            host.close()

    def reached(self) -> dict[str, Host]:
        return {n: host for n, host in self.hosts.items() if not isinstance(host, OpsctlError)}


def _collected(host: Host, services: Sequence[str]) -> dict[str, Any]:
    """The host's answer about these services; about all that stand there, if none is named."""
    from opsctl.remote.onhost import call

    wanted = [part for name in services for part in ("--service", name)]
    return call(host, "collect", *wanted, "--probe", timeout=ANSWER)


@contextmanager
def opened(chosen: Selected) -> Iterator[Fleet]:
    """The fleet; its connections are closed at the end, whatever happens."""
    from opsctl.remote import fanout

    entries = {entry.name: entry for entry in chosen.hosts}
    made = fanout.each(chosen.names, lambda name: connect(entries[name]), timeout=ANSWER)
    fleet = Fleet(chosen, _by_name(made))
    try:
        yield fleet
    finally:
        fleet.close()


def _by_name(outcomes: Sequence[Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            outcome.error.host = outcome.error.host or outcome.name
        said[outcome.name] = outcome.error or outcome.value
    return said


def raise_lost(said: Mapping[str, Any]) -> None:
    """Ends the command for hosts that gave an error, after the others have been shown.

    Raises Unreachable (exit 4) if any host could not be reached; else the error that all of them
    share, or OpsctlError if they differ. Its message names every host.
    """
    lost = {name: answer for name, answer in said.items() if isinstance(answer, OpsctlError)}
    if not lost:
        return
    errors = list(lost.values())
    if len(errors) == 1:
        raise errors[0]
    wrong = [error for error in errors if isinstance(error, SpecError)]
    if len(wrong) == len(errors):
        raise SpecError([problem for error in wrong for problem in error.problems])
    lines = [f"{len(lost)} of {len(said)} hosts gave no answer, or refused"]
    lines += [f"{name}: {error.message}" for name, error in lost.items()]
    raise _kind(errors)("\n".join(lines), hint=errors[0].hint)


def _kind(errors: Sequence[OpsctlError]) -> type[OpsctlError]:
    if any(isinstance(error, Unreachable) for error in errors):
        return Unreachable
    kinds = {type(error) for error in errors}
    return kinds.pop() if len(kinds) == 1 else OpsctlError
