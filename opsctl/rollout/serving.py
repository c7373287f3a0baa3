"""Which described services do not serve, and which step of a roll of drivers must not be done then.
Pure.

A host that serves is only taken down while every service that is described for the other hosts of
the roll serves, or the operator has named the host that he knows not to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.rollout.driver import PLAYBOOK, Step
from opsctl.rollout.plan import activity, states_of

ALLOW = "opsctl_allow_down"  # hosts that are known not to serve
_WORDS = {
    "starting": "is still starting",
    "unhealthy": "is not healthy",
    "unreachable": "does not answer",
}


def down(described: Sequence[str], answer: Mapping[str, Any] | OpsctlError) -> dict[str, str]:
    """Of a host's described services those that do not serve, and how they stand instead.
    `answer`: what the host said to `collect --probe`."""
    if isinstance(answer, OpsctlError):
        return dict.fromkeys(described, f"is not known to serve: {answer.message}")
    states, found = states_of(answer), {}
    for name in described:
        state = states.get(name) or {}
        if state.get("state") != "active":
            parked = ", parked" if state.get("parked") is not None else ""
            found[name] = f"does not serve ({activity(state)}{parked})"
        elif word := _WORDS.get(str(state.get("health"))):
            found[name] = f"does not serve: it {word}"
    return found


def ordered(plan: Sequence[Step]) -> list[Step]:
    """Hosts that do not serve, or that an earlier roll has left half done, come first: nobody
    misses them, and what keeps them down must not reach one that serves. Else as it was."""
    return sorted(plan, key=lambda step: not (step.down or step.half))


def takes_down(step: Step) -> bool:
    """Whether a service that serves now is stopped by it."""
    serve = [name for name in step.described if name not in step.down]
    stopped = serve if step.reboot else [name for name in serve if name in step.services]
    return step.kind == "upgrade" and bool(stopped)


def refuse(plan: Sequence[Step], allowed: Collection[str] = ()) -> None:
    """Raises OpsctlError if a service does not serve that the roll itself would not start, and
    another host would be taken down meanwhile: that roll is known to stop half way."""
    for one in plan:
        left = {name: how for name, how in one.down.items() if name not in one.services}
        hit = [s.host for s in plan if s.host != one.host and takes_down(s)]
        if left and hit and one.host not in allowed:
            raise OpsctlError(
                f"nothing was touched: {told(one.host, left)}, which this roll would not change, "
                f"and {', '.join(hit)} would be taken down meanwhile",
                host=one.host,
                step="driver",
                hint=way_on(one.host, left),
            )


def told(host: str, found: Mapping[str, str]) -> str:
    return "; ".join(f"{name} on {host} {how}" for name, how in found.items())


def way_on(host: str, found: Mapping[str, str]) -> str:
    alive = any(word in how for how in found.values() for word in _WORDS.values())
    verb = "verify" if alive else "start"
    mend = f"opsctl {verb} {' '.join(found)} --limit {host}"
    return f"{mend}; or, if it may stay down: {PLAYBOOK} -e {ALLOW}={host}"
