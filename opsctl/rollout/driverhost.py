"""One host's driver: lock, fetch, park, drain and stop, packages, reboot; then a guard on the host
asks doctor and starts the services behind their gates, and this follows it.

From the moment when a service is parked the host brings it back by itself (onhost/parking.py),
whatever becomes of this process. What happens before that leaves the host as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from opsctl.errors import OpsctlError, Unreachable
from opsctl.onhost import parking
from opsctl.remote import onhost
from opsctl.remote.host import Host, Silent
from opsctl.rollout import steps
from opsctl.rollout.driver import FABRIC, PLAYBOOK, Step
from opsctl.rollout.model import Action, Result
from opsctl.rollout.steps import STOP_MARGIN, Order
from opsctl.rollout.watch import Lost, to_result

BOOT_ID = ["cat", "/proc/sys/kernel/random/boot_id"]
# Later than this command's answer, so that the connection ends in order.
REBOOT = ["systemd-run", "--quiet", "--on-active=1", "systemctl", "reboot"]
LAUNCHED = 300.0  # s that the boot unit may take to launch its guards; its own limit
PATIENCE = 0.1  # of the reboot's timeout: how long a guard waits for driver and fabric manager

Program = Callable[[str], Mapping[str, Any]]
"""The role's program on the host: "fetch" or "install"."""

Outcome = Literal["unchanged", "upgraded", "refused", "restored", "failed", "lost", "skipped"]
GOOD: frozenset[Outcome] = frozenset({"unchanged", "upgraded"})


@dataclass(frozen=True)
class Ended:
    """How one host ended. `state`: what is true on it now; `hint`: what to type next."""

    host: str
    outcome: Outcome
    driver: str = ""
    cause: str = ""
    state: str = ""
    hint: str = ""
    services: tuple[Result, ...] = ()

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def as_json(self) -> dict[str, Any]:
        told = {key: getattr(self, key) for key in ("outcome", "driver", "cause", "state", "hint")}
        return {**told, "services": {r.service: r.as_json() for r in self.services}}


def act(host: Host, step: Step, order: Order, program: Program) -> Ended:
    """Bring one host through. Every failure is told in the result."""
    order = replace(order, reason=f"{order.reason}: {step.reason}")
    taken: list[str] = []
    try:
        for service in step.locked:
            steps.lock(host, service, order)
            taken.append(service)
        if step.kind == "upgrade":
            _demand(program("fetch"))
    except OpsctlError as error:
        _unlock(host, taken, order)
        return _untouched(step, error)
    try:
        ended = _through(host, step, order, program)
    except (Unreachable, Silent, Lost) as error:
        return _lost(step, error)
    if ended.outcome != "lost":
        _unlock(host, taken, order)
    return ended


def roll(
    hosts: Mapping[str, Host],
    plan: Sequence[Step],
    order: Order,
    programs: Callable[[str], Program],
) -> list[Ended]:
    """Host by host in the order of `plan`; the first that is not good ends it."""
    ended: list[Ended] = []
    for step in plan:
        if step.kind == "none":
            ended.append(Ended(step.host, "unchanged", step.have))
        elif all(one.good for one in ended):
            ended.append(act(hosts[step.host], step, order, programs(step.host)))
        else:
            ended.append(Ended(step.host, "skipped", step.have, state="not touched"))
    return ended


def _through(host: Host, step: Step, order: Order, program: Program) -> Ended:
    """What follows once nobody else may touch the host and the packages are there."""
    say = _teller(step, order)
    try:
        for service in step.services:
            onhost.call(host, "park", service, stdin=_document(step, service, order), timeout=60)
        if step.kind == "upgrade":
            for service in step.services:
                say(service, "drain")
                onhost.call(host, "stop", service, timeout=3600 + STOP_MARGIN)
        found = _demand(program("install"))
    except (Unreachable, Silent):
        raise
    except OpsctlError as error:
        return _given_back(host, step, order, error)
    driver = str(found["driver"] or "")
    must = {
        parking.DRIVER: driver,
        parking.GPUS_BEFORE: step.gpus,
        parking.UNITS: [FABRIC] if found.get("fabric") else [],
    }
    trouble = ""
    if found["reboot"]:
        for service in step.services:  # again, now with what that boot has to bring
            document = _document(step, service, order, must)
            onhost.call(host, "park", service, stdin=document, timeout=60)
        trouble = _rebooted(host, step, order, program)
    else:
        for service in step.services:
            document = _document(step, service, order, must)
            onhost.call(host, "launch", service, stdin=document, timeout=60)
    results = [_watched(host, step, service, order) for service in step.services]
    return _judged(step, driver, results, trouble)


def _document(
    step: Step, service: str, order: Order, must: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The run that starts a service again. Without `must`, on whatever driver is whole."""
    document = steps.run_json(_start(step, service), order)
    if must is None:
        return document
    return document | {"must": dict(must), "patience": step.timeout * PATIENCE}


def _start(step: Step, service: str) -> Action:
    return Action(step.host, service, "start", step.reason)


def _rebooted(host: Host, step: Step, order: Order, program: Program) -> str:
    """Boot anew and see the driver's daemons run; what is wrong with them, for the result: whether
    services start is the guards' own decision. Raises Lost."""
    before = host.run(BOOT_ID).out.strip()
    for service in step.services or ("driver",):
        _teller(step, order)(service, "boot")
    host.run(REBOOT)
    _wait(host, step, order, before)
    try:
        _demand(program("install"))
    except (Unreachable, Silent):
        raise
    except OpsctlError as error:
        return error.message
    return ""


def _wait(host: Host, step: Step, order: Order, before: str) -> None:
    end = order.clock.now() + step.timeout
    while order.clock.now() < end:
        order.clock.sleep(2)
        try:
            now = host.run(BOOT_ID, timeout=15).out.strip()
        except (Unreachable, Silent):
            host.close()  # the connection of before the boot may hang, and never fail
            continue
        if now and now != before:
            return
    raise Lost(f"not back {step.timeout:g} s after its reboot", host=step.host, step="reboot")


def _watched(host: Host, step: Step, service: str, order: Order) -> Result:
    """Follow the guard that the host's boot, or we, have launched."""
    action = _start(step, service)
    try:
        _launched(host, service, order)
        limits = replace(order.limits, lost=step.timeout)
        event = to_result(
            host,
            service,
            order.run,
            observer=order.observer,
            limits=limits,
            clock=order.clock,
        )
        return steps.result_of(action, event)
    except OpsctlError as error:
        return steps.failure(action, order, error, launched=True)


def _launched(host: Host, service: str, order: Order) -> None:
    """Raises OpsctlError if no guard of this run appears: then nothing would ever end."""
    end = order.clock.now() + LAUNCHED
    while True:
        answer = onhost.call(host, "collect", "--service", service, timeout=60)
        state = answer["services"][0]
        lock = state.get("lock") or {}
        if (state.get("run") or {}).get("active") or lock.get("state") in ("working", "over"):
            return
        if order.clock.now() > end:
            raise OpsctlError(
                "the boot unit has launched no guard",
                host=host.name,
                step=service,
                hint="on the host: journalctl -b -u opsctl-recover.service",
            )
        order.clock.sleep(1)


def _demand(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises OpsctlError with the problems that the program tells."""
    if found["problems"]:
        raise OpsctlError("; ".join(found["problems"]), step="driver")
    return found


def _unlock(host: Host, services: Sequence[str], order: Order) -> None:
    for service in services:
        steps.unlock(host, service, order.run)


def _teller(step: Step, order: Order) -> Callable[[str, str], None]:
    def say(service: str, phase: str) -> None:
        order.observer(step.host, service, {"event": "phase", "phase": phase})

    return say


# ---------------------------------------------------------------- pure: what an end means
def _untouched(step: Step, error: OpsctlError) -> Ended:
    state = "nothing was touched: its services serve as before"
    hint = error.hint or "put that right"
    if isinstance(error, Unreachable | Silent) and step.locked:
        hint = f"{hint}; locks may be left: opsctl unlock {' '.join(step.locked)}"
    return Ended(step.host, "refused", step.have, error.message, state,
                 f"{hint}; then again: {PLAYBOOK}")  # fmt: skip


def _given_back(host: Host, step: Step, order: Order, error: OpsctlError) -> Ended:
    """Packages failed before any reboot: as long as the old driver is whole, services start again.
    Whether it is, the guard's own preconditions tell; it starts nothing on a driver that is not."""
    results = []
    for service in step.services:
        action = _start(step, service)
        try:
            steps.launch(host, action, order)
        except OpsctlError as problem:
            results.append(steps.failure(action, order, problem, launched=False))
            continue
        results.append(_watched(host, step, service, order))
    good = all(result.good for result in results)
    names = " ".join(step.services)
    again = f"then again: {PLAYBOOK}"
    if good:
        state = "the driver of before is loaded" + (f", and {names} serves on it" if names else "")
        return Ended(step.host, "restored", step.have, error.message, state,
                     f"put that right, {again}", tuple(results))  # fmt: skip
    cause = "; ".join(f"{r.service}: {r.cause}" for r in results if not r.good)
    return Ended(
        step.host,
        "failed",
        step.have,
        error.message,
        f"{names} could not be started again ({cause})",
        f"put that right on {step.host}, then: opsctl start {names} --limit {step.host}; {again}",
        tuple(results),
    )


def _judged(step: Step, driver: str, results: Sequence[Result], trouble: str) -> Ended:
    bad = [result for result in results if not result.good]
    ok = tuple(results)
    names = " ".join(result.service for result in bad)
    if not bad and not trouble:
        return Ended(step.host, "upgraded", driver, services=ok)
    if not bad:
        state = f"driver {driver} runs, and the services serve on it"
        hint = f"put that right, then again: {PLAYBOOK}"
        return Ended(step.host, "failed", driver, trouble, state, hint, ok)
    cause = "; ".join([*([trouble] if trouble else []), *(f"{r.service}: {r.cause}" for r in bad)])
    again = f"then again: {PLAYBOOK}"
    if any(result.outcome == "lost" for result in bad):
        state = f"{names}: a guard is at work there, and cannot be seen"
        return Ended(step.host, "lost", driver, cause, state, bad[0].hint, ok)
    if all(result.outcome == "refused" for result in bad):
        state = (
            f"driver {driver} is installed; {names} is stopped: its guard found the host not well"
        )
        hint = f"mend it, then: opsctl start {names} --limit {step.host}, or reboot; {again}"
        return Ended(step.host, "failed", driver, cause, state, hint, ok)
    state = f"driver {driver} is installed; {names} was started and failed its gates"
    hint = f"opsctl logs {bad[0].service} --host {step.host}; {again}"
    return Ended(step.host, "failed", driver, cause, state, hint, ok)


def _lost(step: Step, error: OpsctlError) -> Ended:
    names = " ".join(step.services)
    if not names:
        state, watch = "what it came to is not known", ""
    else:
        state = f"{names} is parked there: at its next boot it starts if doctor finds the host well"
        watch = f"opsctl watch {names}, and "
    hint = f"look at its console; when it is up: {watch}then again: {PLAYBOOK}"
    return Ended(step.host, "lost", step.have, error.message, state, hint)
