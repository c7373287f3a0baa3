"""One service on one host: lock, stage, launch the guard, watch it, unlock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opsctl.errors import DoesNotFit, LockHeld, OpsctlError, Unreachable
from opsctl.release.model import Release
from opsctl.remote import onhost
from opsctl.remote.host import Host, Silent
from opsctl.rollout import staging
from opsctl.rollout.model import Action, Outcome, Result
from opsctl.rollout.watch import (
    Clock,
    Event,
    Limits,
    Lost,
    Observer,
    WatchedEnough,
    patiently,
    to_result,
)

STOP_MARGIN = 300.0  # s beyond the drain that `stop` may take: systemd's own limits come first


@dataclass(frozen=True)
class Order:
    """What is the same for all hosts of a run."""

    run: str
    owner: str
    reason: str
    created: str
    observer: Observer
    limits: Limits = field(default_factory=Limits)
    clock: Clock = field(default_factory=Clock)
    detach: bool = False


def act(host: Host, action: Action, order: Order, release: Release | None = None) -> Result:
    """Do it and tell how it ended. Ctrl-C ends the watching, never the guard."""
    launched = False
    try:
        order = replace(order, reason=reason_of(action, order.reason))
        lock(host, action.service, order)
        try:
            if release is not None:
                staging.send(host, release)
            if action.kind == "stage":
                unlock(host, action.service, order.run)
                return Result(*action.key, "staged", action.target)
            if action.kind == "stop":
                return _stop(host, action, order)
            launched = True  # from here on a guard may be at work, even if its answer is lost
            patiently(lambda: launch(host, action, order), order.limits, order.clock)
            if order.detach:
                return _detached(action, order, "started, and not watched")
            event = to_result(
                host,
                action.service,
                order.run,
                observer=order.observer,
                limits=order.limits,
                clock=order.clock,
            )
        except (Unreachable, Silent):
            raise
        except OpsctlError as error:
            if not isinstance(error, Lost | WatchedEnough):
                unlock(host, action.service, order.run)
            raise
        unlock(host, action.service, order.run)
        return result_of(action, event)
    except OpsctlError as error:
        return failure(action, order, error, launched)
    except KeyboardInterrupt:
        if launched:
            return detached(action, order)
        unlock(host, action.service, order.run)
        return Result(*action.key, "interrupted", action.running)


def watch(host: Host, action: Action, order: Order) -> Result:
    """Watch a run that is already at work (or over) to its end, and give its lock back."""
    try:
        event = to_result(
            host,
            action.service,
            order.run,
            observer=order.observer,
            limits=order.limits,
            clock=order.clock,
        )
        unlock(host, action.service, order.run)
        return result_of(action, event)
    except OpsctlError as error:
        return failure(action, order, error, launched=True)
    except KeyboardInterrupt:
        return detached(action, order)


def lock(host: Host, service: str, order: Order) -> None:
    """Take the lock; one that was left behind by a run that is over is taken away first."""
    arguments = ("--owner", order.owner, "--reason", order.reason, "--run", order.run)
    try:
        onhost.call(host, "lock", service, *arguments, timeout=60)
    except onhost.Held as held:
        if not held.over:
            raise
        onhost.call(host, "unlock", service, "--run", str(held.lock["run"]), timeout=60)
        onhost.call(host, "lock", service, *arguments, timeout=60)


def reason_of(action: Action, reason: str) -> str:
    """What lock and audit line hold: a forecast that was overridden must be found there, too."""
    if not action.override:
        return reason
    return f"{reason}; forecast overridden: {action.override}"


def unlock(host: Host, service: str, run: str) -> None:
    """A lock that cannot be taken away is no fault: its run is over, and the next one sees that."""
    try:
        onhost.call(host, "unlock", service, "--run", run, timeout=60)
    except OpsctlError:
        return


def launch(host: Host, action: Action, order: Order) -> None:
    """Asking twice for the same run starts it once."""
    onhost.call(host, "launch", action.service, stdin=run_json(action, order), timeout=60)


def run_json(action: Action, order: Order) -> dict[str, Any]:
    return {
        "run": order.run,
        "op": action.kind,
        "service": action.service,
        "target": action.target,
        "owner": order.owner,
        "reason": order.reason,
        "created": order.created,
        **({"process": action.process, "later": list(action.later)} if action.process else {}),
    }


def _stop(host: Host, action: Action, order: Order) -> Result:
    started = order.clock.now()
    order.observer(action.host, action.service, {"event": "phase", "phase": "stop"})
    limit = order.limits.watch
    try:
        onhost.call(host, "stop", action.service, timeout=limit or 3600 + STOP_MARGIN)
    except Silent:
        if limit is None:
            raise
        # The stop itself is systemd's by now; nothing is gained by keeping others from the host.
        unlock(host, action.service, order.run)
        cause = f"watched for {limit:g} s; the host goes on draining and stopping"
        return Result(*action.key, "detached", action.running, cause=cause, hint="opsctl status")
    unlock(host, action.service, order.run)
    seconds = round(order.clock.now() - started, 1)
    return Result(*action.key, "stopped", action.running, seconds)


# ---------------------------------------------------------------- pure: what an end means
_GUARD: Mapping[str, Outcome] = {
    "confirmed": "confirmed",
    "unchanged": "unchanged",
    "rolled_back": "rolled_back",
}
_REFUSED = "refused before anything was touched: "  # the outcome's own words say it, too


def touched(event: Event) -> bool:
    """Whether a guard did anything before it ended with this event."""
    return bool(event.get("checks") or event.get("restored") or float(event.get("seconds") or 0))


def result_of(action: Action, event: Event) -> Result:
    """The result that a guard's last event stands for."""
    checks = tuple(event.get("checks") or ())
    outcome = _GUARD.get(str(event.get("outcome")), "failed")
    if outcome == "failed" and not touched(event):
        outcome = "refused"  # the guard looked before it touched anything, and said no
    return Result(
        *action.key,
        outcome,
        str(event["release"]) if event.get("release") else None,
        float(event.get("seconds") or 0.0),
        str(event.get("cause") or "").removeprefix(_REFUSED),
        next_command(action, outcome),
        checks,
        tuple(str(line) for line in event.get("log") or ()),
    )


def next_command(action: Action, outcome: Outcome) -> str:
    """After a restore the start that failed is not the present one any more."""
    if outcome in ("confirmed", "unchanged", "refused"):
        return ""
    which = " --all-starts" if outcome == "rolled_back" else ""
    return f"opsctl logs {action.service} --host {action.host}{which}"


def _detached(action: Action, order: Order, cause: str) -> Result:
    hint = f"opsctl watch {action.service} (run {order.run})"
    return Result(*action.key, "detached", action.target, cause=cause, hint=hint)


def detached(action: Action, order: Order) -> Result:
    """Ctrl-C while this one was being done."""
    return _detached(action, order, "interrupted")


def failure(action: Action, order: Order, error: OpsctlError, launched: bool) -> Result:
    """The result that an exception stands for."""
    if isinstance(error, WatchedEnough):
        return _detached(action, order, error.message)
    outcome: Outcome = "refused"
    hint = error.hint
    if isinstance(error, Lost) or (launched and isinstance(error, Unreachable | Silent)):
        outcome, hint = "lost", f"opsctl watch {action.service} (run {order.run})"
    elif isinstance(error, LockHeld):
        outcome = "locked"
    elif isinstance(error, DoesNotFit):
        outcome = "unfit"
    elif isinstance(error, Unreachable):
        outcome = "unreachable"
    cause = f"{error.step}: {error.message}" if error.step else error.message
    return Result(*action.key, outcome, None, cause=cause, hint=hint, log=error.log)
