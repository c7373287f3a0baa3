"""A whole rollout: the canary, then the next host only if the one before was confirmed."""

from __future__ import annotations

import getpass
import secrets
import socket
import time
from collections.abc import Mapping

from opsctl.errors import NothingSelected, OpsctlError
from opsctl.release.model import Release
from opsctl.remote.host import Host
from opsctl.rollout import steps
from opsctl.rollout.model import Action, Key, Plan, Result, Results
from opsctl.rollout.plan import states_of
from opsctl.rollout.steps import Order
from opsctl.rollout.watch import Clock, Event, Limits, Observer


def run(
    hosts: Mapping[str, Host],
    plan: Plan,
    *,
    reason: str = "",
    releases: Mapping[Key, Release] | None = None,
    observer: Observer | None = None,
    limits: Limits | None = None,
    detach: bool = False,
    owner: str = "",
    clock: Clock | None = None,
) -> Results:
    """Do the plan. Results for every action, in its order; the first that is not good ends it.

    `releases` are sent to the host under its lock, if given; else they must be staged there.
    Ctrl-C stops the watching, not the guard. `Results.error()` is what a caller may raise.
    """
    if detach and len(plan.changes) > 1:
        raise OpsctlError(
            "only one service on one host can be started without watching it: the next one "
            "waits until it is confirmed",
            hint="choose one with --limit",
        )
    order = Order(
        run=new_run(),
        owner=owner or whoami(),
        reason=reason or f"opsctl {plan.op}",
        created=utc(),
        observer=observer or _nobody,
        limits=limits or Limits(),
        clock=clock or Clock(),
        detach=detach,
    )
    results: list[Result] = []
    for action in plan.actions:
        results.append(_next(hosts, action, order, (releases or {}).get(action.key), results))
    return Results(order.run, plan.op, tuple(results))


def _next(
    hosts: Mapping[str, Host],
    action: Action,
    order: Order,
    release: Release | None,
    before: list[Result],
) -> Result:
    if action.kind == "none":
        return Result(*action.key, "unchanged", action.running, cause=action.reason)
    if not all(result.good for result in before):
        return Result(*action.key, "skipped", action.running)
    return steps.act(hosts[action.host], action, order, release)


def resume(
    hosts: Mapping[str, Host],
    said: Mapping[str, Mapping[str, object] | OpsctlError],
    run_name: str,
    *,
    observer: Observer | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
) -> Results:
    """Watch a run that was left to itself to its end, and give its locks back.

    `said`: what the hosts said to `collect`. Hosts that the run had not come to are not touched.
    Raises NothingSelected if no host knows the run.
    """
    found = [
        Action(host, name, "swap", "resumed", None, None)
        for host, answer in said.items()
        for name, state in states_of(answer).items()
        if (state.get("run") or {}).get("run") == run_name
    ]
    if not found:
        raise NothingSelected(f"no selected host has a run {run_name}")
    order = Order(
        run=run_name,
        owner=whoami(),
        reason="",
        created=utc(),
        observer=observer or _nobody,
        limits=limits or Limits(),
        clock=clock or Clock(),
    )
    results: list[Result] = []
    for action in found:
        results.append(steps.watch(hosts[action.host], action, order))
        if results[-1].outcome == "detached":
            break
    return Results(run_name, "swap", tuple(results))


def new_run() -> str:
    """Sorts by time, and two operators in the same second do not meet."""
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(3)


def utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def whoami() -> str:
    """user@controller, as the lock and the audit show it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _nobody(host: str, service: str, event: Event) -> None:
    return
