"""What would be done, and why: a function of what the hosts say and what is wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from opsctl.errors import LockHeld, NothingSelected, OpsctlError, Unreachable, folded
from opsctl.onhost.model import ENGAGED, up, waits
from opsctl.release.diff import quiet_reasons, restart_reasons, verdict
from opsctl.rollout.model import NOTHING, SAME, ZERO, Action, Key, Kind, Op, Plan, Wanted
from opsctl.rollout.order import ordered

State = Mapping[str, Any]
"""One entry of `collect`'s "services"."""


def make(
    op: Op,
    services: Mapping[str, Sequence[str]],
    said: Mapping[str, Mapping[str, Any] | OpsctlError],
    wanted: Mapping[Key, Wanted] | None = None,
    *,
    canary: str | None = None,
) -> Plan:
    """The plan for `services` (by host) from what each host said to `collect`.

    Raises before anything is touched: NothingSelected; Unreachable if any selected host could not
    be asked (a rollout that leaves one out would leave the fleet mixed); LockHeld if a run is in
    flight on any of them; OpsctlError for what cannot be done.
    """
    if not any(services.values()):
        raise NothingSelected("no service is selected")
    _all_answered(services, said)
    plan, wrong = draw(op, services, said, wanted, canary=canary)
    for error in wrong.values():
        raise error
    return plan


def draw(
    op: Op,
    services: Mapping[str, Sequence[str]],
    said: Mapping[str, Mapping[str, Any] | OpsctlError],
    wanted: Mapping[Key, Wanted] | None = None,
    *,
    canary: str | None = None,
) -> tuple[Plan, dict[Key, OpsctlError]]:
    """As `make`, but what is wrong is told of every host and service, and the plan is of the rest:
    for whoever only wants to know. Of a host that did not answer the service is ""."""
    actions: list[Action] = []
    wrong: dict[Key, OpsctlError] = {}
    for host in ordered([host for host in services if services[host]], canary):
        answer = said.get(host, OpsctlError("was not asked", host=host))
        if isinstance(answer, OpsctlError):
            wrong[host, ""] = answer
            continue
        states = states_of(answer)
        for name in services[host]:
            state = states.get(name) or {"service": name, "state": "absent"}
            try:
                _not_in_flight(host, name, state)
                actions.append(decide(op, host, name, state, (wanted or {}).get((host, name))))
            except OpsctlError as error:
                wrong[host, name] = error
    if op not in ("start", "stop"):
        actions = _down_first(actions, said, canary)
    return Plan(op, tuple(actions)), wrong


def _down_first(
    actions: Sequence[Action],
    said: Mapping[str, Mapping[str, Any] | OpsctlError],
    canary: str | None,
) -> list[Action]:
    """After the canary come hosts with a service that does not run: what keeps it down must not
    reach one that serves, and nothing more is missed while it is tried. A canary that serves is
    taken down for it all the same, and that is told."""
    down: dict[Key, str] = {}
    for action in actions:
        state = states_of(said[action.host]).get(action.service) or {}
        if state.get("state", "absent") != "absent" and not is_up(state):
            down[action.key] = activity(state)
    hosts = {host for host, _ in down}
    found = sorted(actions, key=lambda a: (a.host != canary, a.host not in hosts))
    return [
        replace(a, reason=a.reason + _meanwhile(a, down))
        if a.restarts and a.host == canary and a.key not in down
        else a
        for a in found
    ]


def _meanwhile(action: Action, down: Mapping[Key, str]) -> str:
    others = [
        f"{host} ({how})"
        for (host, name), how in down.items()
        if name == action.service and host != action.host
    ]
    return f"; meanwhile {action.service} does not run on {', '.join(others)}" if others else ""


def states_of(answer: Mapping[str, Any] | OpsctlError) -> dict[str, State]:
    if isinstance(answer, OpsctlError):
        return {}
    return {state["service"]: state for state in answer.get("services", ())}


def is_up(state: State) -> bool:
    return up(str(state.get("state") or ""), str(state.get("sub") or ""))


def activity(state: State) -> str:
    """In a word of systemd's; of a unit that dies and is started over and over, both."""
    told, sub = str(state.get("state") or "absent"), str(state.get("sub") or "")
    return f"{told} ({sub})" if waits(sub) else told


def _all_answered(
    services: Mapping[str, Sequence[str]], said: Mapping[str, Mapping[str, Any] | OpsctlError]
) -> None:
    silent = {
        host: answer
        for host in services
        if isinstance(answer := said.get(host, OpsctlError("was not asked")), OpsctlError)
    }
    if not silent:
        return
    first = next(iter(silent.values()))
    kind = Unreachable if any(isinstance(e, Unreachable) for e in silent.values()) else OpsctlError
    raise kind(
        "nothing was touched, since not every selected host answers: "
        + "; ".join(
            f"{hosts}: {text}" for hosts, text in folded((h, e.message) for h, e in silent.items())
        ),
        host=next(iter(silent)),
        step=first.step,
        hint=first.hint or "leave a host out with --limit",
    )


def _not_in_flight(host: str, service: str, state: State) -> None:
    run = state.get("run") or {}
    if not run.get("active"):
        return
    lock = state.get("lock") or {}
    raise LockHeld(
        f"a run is at work on {service}: {run.get('run')}, phase {run.get('phase') or 'unknown'}"
        + (f", of {lock['owner']}: {lock.get('reason', '')}" if lock.get("owner") else ""),
        host=host,
        step="plan",
        hint=f"watch it with `opsctl watch {service}`; it ends by itself",
    )


def decide(op: Op, host: str, name: str, state: State, wanted: Wanted | None) -> Action:
    """The action for one service."""
    running = _release(state, "running")
    stops = state.get("state") in ENGAGED
    if op == "swap":
        return _swap(host, name, state, wanted)
    if op == "stop":
        kind: Kind = "stop" if stops else "none"
        return Action(host, name, kind, "asked for" if stops else "is not running", None, running)
    if state.get("state", "absent") == "absent" and op != "restore":
        raise OpsctlError(f"{name} is not deployed here", host=host, step=op, hint="opsctl deploy")
    if op == "start":
        kind = "none" if is_up(state) else "start"
        reason = "is running" if kind == "none" else f"start: the unit is {activity(state)}"
        return Action(host, name, kind, reason, None, running)
    if op == "restart":
        return Action(host, name, "restart", "restart: asked for", None, running)
    return _back(op, host, name, state, wanted)


def _swap(host: str, name: str, state: State, wanted: Wanted | None) -> Action:
    if wanted is None:
        raise OpsctlError(f"no release of {name} is staged for this host", host=host, step="plan")
    running, confirmed = _release(state, "running"), _release(state, "confirmed")
    digest = wanted.digest

    def action(kind: Kind, reason: str) -> Action:
        if kind in ("swap", "takeover"):
            reason += _other_zero(state) + _no_way_back(state)
        if kind == "swap":
            reason += _failed_here(state, digest)
        return Action(host, name, kind, reason, digest, running, override)

    expect = (wanted.manifest or {}).get("expect") or {}
    override = str(expect.get("override") or "")
    runs_theirs = running == ZERO and not _edited(state) and state.get("state") == "active"
    taken = wanted.takeover if runs_theirs else None
    if taken is not None and not taken.differs and taken.invocation == state.get("invocation"):
        words = f"no restart: {SAME}"
        return replace(action("takeover", words), process=taken.invocation, later=taken.later)
    if running != digest:
        later = taken.later if taken is not None else ()
        return replace(action("swap", _why(state, running, wanted)), later=later)
    if state.get("state") != "active":
        return action("swap", f"start: the unit is {activity(state)}")
    if confirmed != digest:
        return action("swap", "restart: this release runs, but its gates never passed")
    if wanted.changed:
        return action("stage", _staged(state.get("manifest"), wanted.manifest))
    return action("none", NOTHING + _drift(state))


def _staged(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if not old or not new:
        return "no restart: files differ"
    if old["digest"] == new["digest"] and not quiet_reasons(old, new):
        return "no restart: the program that guards starts here is of another opsctl"
    return verdict(old, new)


def _drift(state: State) -> str:
    """A hand on the host is told where the description says that all is well."""
    found = [c for c in state.get("checks") or () if c["id"] == "drift" and c["status"] == "fail"]
    return f"; but on the host {found[0]['detail']}" if found else ""


def _why(state: State, running: str | None, wanted: Wanted) -> str:
    other = (wanted.manifest or {}).get("takes_over")
    if running is None and is_up(state):  # its process outlives the file
        return "restart: the unit file is gone"
    if running is None and _release(state, "confirmed"):
        return "start: its unit file is gone, and it does not run"
    if running is None and other:
        return f"restart: takes over {other}: a process cannot go on in a unit of another name"
    if running is None:
        return "start: the first release on this host"
    if _edited(state):
        return "restart: the unit was edited by hand"
    if running == ZERO:
        differs = wanted.takeover.differs if wanted.takeover else ()
        return "restart: " + "; ".join(
            [*differs, "takes over the unit that stood here before opsctl"]
        )
    old, new = state.get("manifest"), wanted.manifest
    reasons = restart_reasons(old, new) if old and new else []
    return "restart: " + ("; ".join(reasons) or f"release {running[:12]} → {wanted.digest[:12]}")


def _edited(state: State) -> bool:
    return bool((state.get("release") or {}).get("edited"))


def _back(op: Op, host: str, name: str, state: State, wanted: Wanted | None) -> Action:
    running = _release(state, "running")
    known = _release(state, "previous" if op == "rollback" else "confirmed")
    target = wanted.digest if wanted else known
    if target is None:
        what = "earlier release" if op == "rollback" else "confirmed release"
        raise OpsctlError(f"there is no {what} of {name} on this host", host=host, step=op)
    confirmed = _release(state, "confirmed")
    if running == target == confirmed and state.get("state") == "active":
        edited = target == ZERO and _zero(state).get("edited")
        told = "; its text is not that of release 0: it was edited since" if edited else ""
        return Action(host, name, "none", f"no restart: it runs already{told}", target, running)
    if target == ZERO and (missing := _zero(state).get("missing")):
        raise OpsctlError(
            "; ".join(map(str, missing)),
            host=host,
            step=op,
            hint="put back what is named, or roll back to another release",
        )
    where = "what stood there before opsctl" if target == ZERO else f"release {target[:12]}"
    kind: Kind = "rollback" if op == "rollback" else "restore"
    told = f"restart: back to {where}" + (_of_zero(state) if target == ZERO else "")
    return Action(host, name, kind, told + _failed_here(state, target), target, running)


def _failed_here(state: State, digest: str) -> str:
    """A warning, if the last run on this host could not bring up this very release."""
    failed = (state.get("run") or {}).get("failed") or {}
    if failed.get("release") != digest:
        return ""
    when = datetime.fromtimestamp(float(failed["time"]), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"; this release failed here at {when}: {failed.get('cause') or 'no cause is on record'}"


def _no_way_back(state: State) -> str:
    """A warning, if a failure would bring a unit of other hands back that could not start: the one
    that stands there, or the one whose process our unproven release has taken over."""
    release = state.get("release") or {}
    missing = release.get("missing") or ()
    if state.get("taken_over"):
        missing = _zero(state).get("missing") or ()
    return f"; should it fail, nothing could be restored: {'; '.join(missing)}" if missing else ""


def _other_zero(state: State) -> str:
    """What stood there before opsctl came back by a rollback, and was edited since."""
    if not _zero(state).get("edited"):
        return ""
    return (
        "; the unit that stands there was edited since release 0 was kept of it: its text of now "
        "becomes release 0"
    )


def _of_zero(state: State) -> str:
    """What a start of the unit of other hands takes and brings, as far as it is known."""
    drain = ((state.get("manifest") or {}).get("timing") or {}).get("drain")
    told = (
        f"; up to {drain:.0f} s to drain, then its start: how long is not recorded" if drain else ""
    )
    if _zero(state).get("keys"):
        told += "; keys stand in the command line again"
    return told


def _zero(state: State) -> Mapping[str, Any]:
    return (state.get("release") or {}).get("zero") or {}


def _release(state: State, key: str) -> str | None:
    value = (state.get("release") or {}).get(key)
    return str(value) if value is not None and value != "" else None
