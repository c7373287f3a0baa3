"""Asks every selected host, all at once, what stands there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.remote import fanout, onhost
from opsctl.remote.host import Host

TIMEOUT = 60.0  # s for all hosts together; one collection is some 0.3 s on a host


def look(
    hosts: Mapping[str, Host],
    services: Mapping[str, Sequence[str]],
    *,
    probe: bool = False,
    timeout: float = TIMEOUT,
) -> dict[str, Mapping[str, Any] | OpsctlError]:
    """By host, in the order of `hosts`: what it said to `collect`, or why it said nothing."""

    def ask(name: str) -> Mapping[str, Any]:
        wanted = [part for service in services.get(name, ()) for part in ("--service", service)]
        more = ["--probe"] if probe else []
        return onhost.call(hosts[name], "collect", *wanted, *more, timeout=timeout)

    outcomes = fanout.each(list(hosts), ask, timeout=timeout)
    said: dict[str, Mapping[str, Any] | OpsctlError] = {}
    for outcome in outcomes:
        said[outcome.name] = outcome.error or outcome.value or {}
    return said
