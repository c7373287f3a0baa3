"""One host's driver: lock, fetch, park, drain and stop, packages, reboot; then a guard on the host
asks doctor and starts the services behind their gates, and this follows it.

From the moment when a service is parked the host brings it back by itself (onhost/parking.py),
whatever becomes of this process. What happens before that leaves the host as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.onhost import parking
from opsctl.remote import onhost
from opsctl.remote.host import Host, Silent
from opsctl.rollout import driverend, serving, steps
from opsctl.rollout.driver import FABRIC, Step
from opsctl.rollout.driverend import BOOTS, LOOKS, STARTS, STOPS, Ended, Place
from opsctl.rollout.look import look
from opsctl.rollout.model import Action, Result
from opsctl.rollout.steps import STOP_MARGIN, Order
from opsctl.rollout.watch import Lost, to_result

BOOT_ID = ["cat", "/proc/sys/kernel/random/boot_id"]
# Later than this command's answer, so that the connection ends in order.
REBOOT = ["systemd-run", "--quiet", "--on-active=1", "systemctl", "reboot"]
LAUNCHED = 300.0  # s that the boot unit may take to launch its guards; its own limit
ASKED, BETWEEN = 3, 5.0  # how often others are asked whether they serve; s from one to the next
PATIENCE = 0.1  # of the reboot's timeout: how long a guard waits for driver and fabric manager

Program = Callable[[str], Mapping[str, Any]]
"""The role's program on the host: "fetch" or "install"."""


def act(host: Host, step: Step, order: Order, program: Program, place: Place) -> Ended:
    """Bring one host through. Every failure is told in the result."""
    place.step, place.phase = step, LOOKS
    ended = _acted(host, step, order, program, place)
    place.step = None
    return ended


def _acted(host: Host, step: Step, order: Order, program: Program, place: Place) -> Ended:
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
        return driverend.untouched(step, error)
    try:
        ended = _through(host, step, order, program, place)
    except (Unreachable, Silent, Lost) as error:
        return driverend.lost(step, error)
    if ended.outcome != "lost":
        _unlock(host, taken, order)
    return ended


def roll(
    hosts: Mapping[str, Host],
    plan: Sequence[Step],
    order: Order,
    programs: Callable[[str], Program],
    allowed: Collection[str] = (),
    place: Place | None = None,
) -> list[Ended]:
    """Host by host in the order of `plan`; the first that is not good ends it, and so does one
    that would be taken down while another does not serve (but for those `allowed` not to)."""
    ended: list[Ended] = []
    for step in plan:
        if step.kind == "none":
            ended.append(Ended(step.host, "unchanged", step.have))
        elif all(one.good for one in ended):
            others = [o for o in plan if o.host != step.host and o.host not in allowed]
            hole = _hole(hosts, others, order) if serving.takes_down(step) else None
            ended.append(
                driverend.spared(step, *hole)
                if hole
                else act(hosts[step.host], step, order, programs(step.host), place or Place())
            )
        else:
            ended.append(Ended(step.host, "skipped", step.have, state="not touched"))
    return ended


def _hole(
    hosts: Mapping[str, Host], others: Sequence[Step], order: Order
) -> tuple[str, Mapping[str, str]] | None:
    """The first other host on which a described service does not serve, asked anew: the plan's
    look may be an hour old. An engine under load may miss an answer, so it is asked again."""
    services = {one.host: one.described for one in others if one.described}
    for n in range(ASKED):
        if n:
            order.clock.sleep(BETWEEN)
        asked = {name: hosts[name] for name in services}
        said = look(asked, services, probe=True) if asked else {}
        found = {name: serving.down(services[name], said[name]) for name in services}
        services = {name: services[name] for name, down in found.items() if down}
        if not services:
            return None
    first = next(iter(services))
    return first, found[first]


def _through(host: Host, step: Step, order: Order, program: Program, place: Place) -> Ended:
    """What follows once nobody else may touch the host and the packages are there."""
    place.phase = STOPS
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
        place.phase = STARTS
        return driverend.given_back(step, error, _given_back(host, step, order))
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
        place.phase = BOOTS
        trouble = _rebooted(host, step, order, program)
    else:
        for service in step.services:
            document = _document(step, service, order, must)
            onhost.call(host, "launch", service, stdin=document, timeout=60)
    place.phase = STARTS
    results = [_watched(host, step, service, order) for service in step.services]
    return driverend.judged(step, driver, results, trouble)


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


def _given_back(host: Host, step: Step, order: Order) -> list[Result]:
    """As long as the old driver is whole, services start again. Whether it is, the guard's own
    preconditions tell; it starts nothing on a driver that is not."""
    results = []
    for service in step.services:
        action = _start(step, service)
        try:
            steps.launch(host, action, order)
        except OpsctlError as problem:
            results.append(steps.failure(action, order, problem, launched=False))
            continue
        results.append(_watched(host, step, service, order))
    return results
