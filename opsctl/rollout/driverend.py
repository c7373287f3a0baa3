"""How a host ended in a roll of drivers: what is true there now, and what to type next. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opsctl.errors import OpsctlError, Unreachable
from opsctl.remote.host import Silent
from opsctl.rollout import serving
from opsctl.rollout.driver import PLAYBOOK, Step
from opsctl.rollout.model import Result

Outcome = Literal["unchanged", "upgraded", "refused", "restored", "failed", "lost", "skipped"]
LOOKS, STOPS, BOOTS, STARTS = "looks", "stops", "boots", "starts"  # how far a host has come
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


def untouched(step: Step, error: OpsctlError) -> Ended:
    """A lock that is left on a host out of reach is told, with what ends it, by the next roll."""
    state = "nothing was touched: its services serve as before"
    hint = error.hint or "put that right"
    if isinstance(error, Unreachable | Silent):
        state = "this roll touched nothing; whether its services serve is not known"
    if isinstance(error, Silent) and step.locked:
        hint = f"{hint}; locks may be left: opsctl unlock {' '.join(step.locked)}"
    return Ended(step.host, "refused", step.have, error.message, state,
                 f"{hint}; then again: {PLAYBOOK}")  # fmt: skip


@dataclass
class Place:
    """Where a roll is now, for whoever interrupts it. `phase`: see `interrupted`."""

    step: Step | None = None
    phase: str = ""


def interrupted(place: Place) -> Ended | None:
    """What is so on the host that the roll was at when its process was ended, and what to type;
    None between two hosts, where nothing is left behind."""
    step, names = place.step, " ".join(place.step.services) if place.step else ""
    if step is None:
        return None
    again, here = f"then again: {PLAYBOOK}", f"--limit {step.host}"
    locks = f"opsctl unlock {' '.join(step.locked)} {here}; " if step.locked else ""
    if place.phase == LOOKS:
        state, hint = "its services serve as before; locks may be left", f"{locks}{again}"
    elif place.phase == STOPS:
        begun = "a drain or packages that were begun go on there to their end"
        state = f"{names} is parked, and stopped or about to be; {begun}" if names else begun
        hint = f"opsctl status {here}; {locks}{again}"
        hint += f" (or only: opsctl start {names} {here})" if names else ""
    elif place.phase == BOOTS:
        state = f"it boots anew; {names} starts then if doctor finds the host well"
        state, hint = (state, _watch(names, again)) if names else ("it boots anew", again)
    else:
        state = f"a guard on the host starts {names} behind its gates, whoever watches"
        hint = _watch(names, again)
    return Ended(step.host, "lost", step.have, "interrupted", state, hint)


def _watch(names: str, again: str) -> str:
    return f"opsctl watch {names}; {again}"


def lines(bad: Ended) -> list[str]:
    """For people: the host that ended the roll, what is so on it, what to type."""
    return [f"{bad.host}: {bad.cause}", f"now: {bad.state}", f"next: {bad.hint}"]


def spared(step: Step, other: str, found: Mapping[str, str]) -> Ended:
    """It serves, and was not taken down while `other` does not."""
    cause = f"was not taken down, since {serving.told(other, found)}"
    state = "nothing was touched: its services serve as before"
    hint = f"{serving.way_on(other, found)}; then again: {PLAYBOOK}"
    return Ended(step.host, "refused", step.have, cause, state, hint)


def given_back(step: Step, error: OpsctlError, results: Sequence[Result]) -> Ended:
    """Packages failed before any reboot."""
    names, again = " ".join(step.services), f"then again: {PLAYBOOK}"
    if all(result.good for result in results):
        if step.have:
            state = "the driver of before is loaded"
            state += f", and {names} serves on it" if names else ""
        else:
            state = "no driver is loaded, as before" + (f"; {names} serves" if names else "")
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


def judged(step: Step, driver: str, results: Sequence[Result], trouble: str) -> Ended:
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


def lost(step: Step, error: OpsctlError) -> Ended:
    names = " ".join(step.services)
    if not names:
        state, watch = "what it came to is not known", ""
    else:
        state = f"{names} is parked there: at its next boot it starts if doctor finds the host well"
        watch = f"opsctl watch {names}, and "
    hint = f"look at its console; when it is up: {watch}then again: {PLAYBOOK}"
    return Ended(step.host, "lost", step.have, error.message, state, hint)
