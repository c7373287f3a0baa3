"""The decisions of a swap, over values: what to aim at, what to fall back on, where to go on.

A swap is told in `pending.json`, which is written before the first effect and removed after the
last one. Whoever finds it (the guard run again, the dead-man, the boot unit) goes on from its
`step`:

    target    the target is being brought up; nothing has been decided
    confirm   every gate of the target has passed: only book-keeping is left
    restore   the target has failed: the fallback is being brought up
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Dict, List, Mapping, Optional

from opsctl.onhost.store import ZERO, Refused
from opsctl.onhost.systemd import UnitState

OPS = ("swap", "takeover", "restart", "start", "rollback", "restore")
TAKEOVER = "takeover"  # a swap of the unit file alone: the process runs on
TARGET, CONFIRM, RESTORE = "target", "confirm", "restore"
SILENT = ("start: ", "health: ", "generation: ")  # causes of an engine that answers nobody
HOPELESS_GRACE = 10.0
TRIES = {"restart": 2, "start": 2}  # the same release may fail by chance; a new one is not retried


@dataclass(frozen=True)
class Pending:
    run: str
    op: str
    target: str
    fallback: str = ""  # digest to restore; "" if nothing was ever confirmed here
    before: str = ""  # invocation that ran when this step began: not the one to be gated
    taken: str = ""  # invocation that a takeover found, and leaves running
    step: str = TARGET
    tries: int = 1
    began: float = 0.0
    cause: str = ""
    checks: List[Dict[str, Any]] = field(default_factory=list)
    log: List[str] = field(default_factory=list)

    def as_json(self) -> Dict[str, Any]:
        return asdict(self)

    @property
    def goal(self) -> str:
        return self.fallback if self.step == RESTORE else self.target


def pending_of(value: Optional[Dict[str, Any]]) -> Optional[Pending]:
    """Pending from its JSON; keys of another version are left out."""
    if value is None or not {"run", "op", "target"} <= set(value):
        return None
    known = {f.name for f in fields(Pending)}
    return Pending(**{key: part for key, part in value.items() if key in known})


def target_of(op: str, asked: Optional[str], confirmed: str, previous: str, standing: str) -> str:
    """The release to bring up. Raises Refused if the request names none and none is known."""
    if op not in OPS:
        raise Refused(f"unknown operation {op!r}; allowed: {', '.join(OPS)}")
    if asked:
        return asked
    if op == "rollback":
        found = previous
    elif op == "restore":
        found = confirmed
    else:
        found = confirmed or (standing if standing not in ("", "foreign") else "")
    if not found:
        need = {"rollback": "no earlier release", "restore": "no confirmed release"}
        raise Refused(
            f"{op}: there is {need.get(op, 'no release')} of this service on this host",
            hint="deploy one first",
        )
    return found


def fallback_of(
    op: str, target: str, confirmed: str, unproven: bool, zero: bool, has_unit: bool
) -> str:
    """What to restore if the target fails: the last confirmed release, else what stood there
    before us. `has_unit`: whether that confirmed release is still on disk; `zero`: whether a unit
    of other hands stands in place.

    A release that took a running process over has never been started by its own unit (`unproven`):
    what has, is release 0. And whose process is taken over, is what its failure gives back.
    """
    if op == TAKEOVER or (unproven and target != ZERO):
        return ZERO
    if confirmed and has_unit:
        return confirmed
    return ZERO if zero else ""


def to_be_taken(document: Mapping[str, Any], of_other_hands: bool, state: UnitState) -> str:
    """The invocation of the process that a run shall take over; "" if it is no takeover. Raises
    Refused if it is not, or not any more, the one that the plan compared with the release."""
    if document["op"] != TAKEOVER:
        return ""
    if not of_other_hands:
        raise Refused("no unit of other hands stands there", hint="plan again")
    if state.active != "active" or not state.invocation:
        raise Refused(f"{state.name} is {state.active}", hint="plan again")
    if state.invocation != document.get("process"):
        raise Refused("the engine was started again since it was planned", hint="plan again")
    return state.invocation


def still_theirs(pending: Pending, state: UnitState) -> bool:
    """Whether the process that a takeover found still runs: only the unit file is exchanged then,
    forth and back."""
    return bool(pending.taken) and state.invocation == pending.taken and state.active == "active"


def unchanged(op: str, target: str, standing: str, confirmed: str, state: UnitState) -> bool:
    """Whether the target serves already, confirmed, so that nothing needs to be touched."""
    runs = state.active == "active" and state.properties.get("NeedDaemonReload") != "yes"
    return op != "restart" and runs and standing == target == confirmed


def brought_up(goal: str, before: str, standing: str, state: UnitState) -> bool:
    """Whether the goal has been started in this step already: then a guard that was run again
    gates that start, and does not stop it."""
    fresh = state.invocation != before or not state.invocation
    return standing == goal and (state.up or state.job) and fresh and state.restarts == 0


def grace(pending: Pending) -> Optional[float]:
    """Seconds that the running engine gets to drain; None: as long as its unit says.

    One that answers nobody has no requests that could finish, but waits for those that hang: for
    all of drain + 75 s, in which nothing serves.
    """
    hopeless = pending.step == RESTORE and pending.cause.startswith(SILENT)
    return HOPELESS_GRACE if hopeless else None


def after_failure(
    pending: Pending, now_running: str, cause: str, log: List[str]
) -> Optional[Pending]:
    """The next attempt after a goal failed to come up; None if there is nothing left to try."""
    if pending.step == RESTORE:
        return None
    if pending.tries < TRIES.get(pending.op, 1):
        return replace(pending, tries=pending.tries + 1, before=now_running)
    if not pending.fallback or pending.fallback == pending.target:
        return None
    return restoring(pending, now_running, cause, log)


def restoring(
    pending: Pending, now_running: str, cause: str, log: Optional[List[str]] = None
) -> Pending:
    """A process that was taken over is not restarted to give it back: its very start is gated."""
    before = "" if pending.taken == now_running else now_running
    return replace(pending, step=RESTORE, before=before, cause=cause, log=list(log or []))


def after_power_cut(pending: Pending) -> Pending:
    """How to go on at boot. What was not confirmed is not tried again: it may be what took the
    host down. What had passed every gate is kept, and gated once more, since it starts anew; only
    of a takeover it was the process that had passed, and what starts anew is not it."""
    if pending.step == CONFIRM or (pending.step == TARGET and pending.target == pending.fallback):
        fallback = pending.fallback if pending.op == TAKEOVER else pending.target
        return replace(pending, step=TARGET, before="", taken="", fallback=fallback, tries=1)
    if pending.step == RESTORE:
        return replace(pending, before="", taken="")
    cause = "the host lost power or was restarted during the swap"
    return replace(pending, step=RESTORE, before="", taken="", cause=cause)
