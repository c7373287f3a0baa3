"""Follows a guard to its result, across lost connections: it does not need us, we need it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from opsctl.errors import OpsctlError, Unreachable
from opsctl.remote import onhost
from opsctl.remote.host import Host, Silent

T = TypeVar("T")
Event = Mapping[str, Any]
Observer = Callable[[str, str, Event], None]
"""(host, service, event) for whoever shows runs."""


@dataclass(frozen=True)
class Limits:
    """Seconds. `idle`: silence after which the stream is opened anew; `lost`: how long a host may
    be out of reach before it is given up (a reboot of such a host takes some ten minutes)."""

    idle: float = 60.0
    lost: float = 900.0
    watch: float | None = None
    retry_first: float = 1.0
    retry_last: float = 15.0


@dataclass(frozen=True)
class Clock:
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Lost(OpsctlError):
    """The guard is at work, but the host could not be reached for `Limits.lost` seconds."""

    exit_code = Unreachable.exit_code


class WatchedEnough(OpsctlError):
    """`Limits.watch` is over; the guard goes on."""

    exit_code = 130


def to_result(
    host: Host,
    service: str,
    run: str,
    *,
    observer: Observer,
    limits: Limits,
    clock: Clock,
) -> Event:
    """The run's result event. Every event is observed once, whatever happens to the connection.

    Raises Lost, WatchedEnough, or the host's own OpsctlError (there is no such run).
    """
    seen, lost_since, pause = 0, None, limits.retry_first
    end = None if limits.watch is None else clock.now() + limits.watch
    while True:
        try:
            idle = limits.idle if end is None else min(limits.idle, max(1.0, end - clock.now()))
            events = onhost.follow(host, "follow", service, run, "--from", str(seen + 1), idle=idle)
            with closing(events):  # type: ignore[type-var]
                for event in events:
                    lost_since, pause = None, limits.retry_first
                    number = int(event.get("n") or 0)
                    if number <= seen:
                        continue
                    seen = number
                    observer(host.name, service, event)
                    if event.get("event") == "result":
                        return event
                    _enough(end, clock, host.name, limits)
            error: OpsctlError = Unreachable("the events ended before the result", host=host.name)
        except Silent:
            # The host is there (else the connection would have been lost) and has nothing to say.
            _enough(end, clock, host.name, limits)
            continue
        except Unreachable as unreachable:
            error = unreachable
        _enough(end, clock, host.name, limits)
        if lost_since is None:
            lost_since = clock.now()
            text = f"connection lost ({error.message}); the host goes on by itself; reconnecting"
            observer(host.name, service, {"event": "note", "text": text})
        if clock.now() - lost_since > limits.lost:
            raise Lost(
                f"out of reach for {limits.lost:g} s: {error.message}", host=host.name, step="watch"
            )
        clock.sleep(pause)
        pause = min(2 * pause, limits.retry_last)


def patiently(work: Callable[[], T], limits: Limits, clock: Clock) -> T:
    """`work` that does no harm when done twice, again and again until the host answers it.

    Raises the last Unreachable or Silent after `limits.lost` seconds, any other error at once.
    """
    began, pause = clock.now(), limits.retry_first
    while True:
        try:
            return work()
        except (Unreachable, Silent):
            if clock.now() - began > limits.lost:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, limits.retry_last)


def _enough(end: float | None, clock: Clock, host: str, limits: Limits) -> None:
    if end is not None and clock.now() >= end:
        raise WatchedEnough(f"watched for {limits.watch:g} s", host=host, step="watch")
