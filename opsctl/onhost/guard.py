"""The guard: brings a release up on this host, gates it, and confirms or restores by itself.

It runs as a transient unit, so that nobody's connection matters to it. Every step may be the last
one before a power cut or a SIGKILL: each is safe to run again, and `pending.json` says where to go
on (see swap.py).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional

from opsctl.onhost import ending, preflight, startup, swap, zero
from opsctl.onhost.gates import ORDER
from opsctl.onhost.model import FAIL, Check
from opsctl.onhost.startup import Clock, Eyes
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.swap import CONFIRM, RESTORE, TARGET, Pending
from opsctl.onhost.systemd import CallFailed, Systemd


class ShuttingDown(Exception):
    """The host is being shut down: the boot unit will go on with this run."""


@contextmanager
def _no_allowance(seconds: float) -> Iterator[None]:
    yield


@dataclass
class World:
    """All that the guard touches, so that a test can put a fake in the place of each."""

    store: Store
    systemd: Systemd
    eyes: Eyes
    clock: Clock
    outside: preflight.Outside
    allow: Callable[[float], ContextManager[None]] = _no_allowance  # see heart.Heart


@dataclass
class Guard:
    world: World
    run: str
    document: Mapping[str, Any]
    checks: List[Check] = field(default_factory=list)  # of the goal that is gated now
    events: int = 0  # how many are written; counted from the file by a guard that is run again

    # -- the story

    def execute(self, force_restore: bool = False) -> Dict[str, Any]:
        """Bring the run to its end, from wherever it stands. Answers the result."""
        store = self.world.store
        known = store.result(self.run)
        if known is not None:
            return self._close(known)
        pending = swap.pending_of(store.pending())
        if pending is None or pending.run != self.run:
            if force_restore:
                return self._end(
                    "failed", self._standing(), "the guard died before it touched anything"
                )
            begun = self._begin()
            if isinstance(begun, dict):
                return begun
            pending = begun
        elif force_restore and pending.step == TARGET and pending.fallback != pending.target:
            cause = "the guard of this run died twice"
            pending = swap.restoring(pending, self._invocation(), cause)
            self._remember(pending)
        return self._work(pending)

    def _begin(self) -> Any:
        """Everything that can be found out before the old release is touched.

        Answers the Pending, or the result if there is nothing to do or it cannot be done.
        """
        store, standing = self.world.store, self._standing()
        try:
            asked = store.manifest(str(self.document.get("target") or ZERO)) or {}
            same = self.document["op"] == swap.TAKEOVER
            of_other_hands = zero.keep(store, self.world.systemd, self.run, self._note, asked, same)
            standing = self._standing()
            target = swap.target_of(
                self.document["op"],
                self.document.get("target"),
                store.confirmed(),
                store.previous(),
                standing,
            )
            state = self.world.systemd.show(store.unit)
            if swap.unchanged(self.document["op"], target, standing, store.confirmed(), state):
                store.remove_parked()
                return self._end("unchanged", target)
            taken = swap.to_be_taken(self.document, of_other_hands, state)
            self._fit(target)
        except (Refused, CallFailed, OSError) as error:
            hint = f"; {error.hint}" if isinstance(error, Refused) and error.hint else ""
            return self._end(
                "failed", standing, f"refused before anything was touched: {error}{hint}"
            )
        confirmed = store.confirmed()
        pending = Pending(
            run=self.run,
            op=self.document["op"],
            target=target,
            fallback=swap.fallback_of(
                self.document["op"],
                target,
                confirmed,
                store.unproven() and store.release_unit(ZERO) is not None,
                of_other_hands,
                store.release_unit(confirmed or ZERO) is not None,
            ),
            before="" if taken else state.invocation,
            taken=taken,
            began=self.world.clock.now(),
        )
        store.write_pending(pending.as_json())
        return pending

    def _fit(self, target: str) -> None:
        """Raises Refused with what keeps the release from starting. A run that a boot has launched
        is patient: what it needs comes up beside it."""
        store, systemd, clock = self.world.store, self.world.systemd, self.world.clock
        end = clock.monotonic() + float(self.document.get("patience") or 0)
        told = False
        while True:
            try:
                must = self.document.get("must")
                wrong = self.world.outside.not_back(must, store, systemd) if must else []
                if wrong:
                    raise Refused("; ".join(wrong))
                preflight.check(store, systemd, self.world.outside, target)
                return
            except Refused as refused:
                if clock.monotonic() >= end:
                    raise
                if not told:
                    self._note(f"waits: {refused}", [])
                    told = True
            clock.sleep(2.0)

    def _work(self, pending: Pending) -> Dict[str, Any]:
        while pending.step != CONFIRM:
            if not pending.goal:
                return self._given_up(pending, Check("start", FAIL, pending.cause))
            failed = self._bring_up(pending)
            if failed is not None and self.world.systemd.shutting_down():
                raise ShuttingDown("the host is being shut down; the next boot settles this run")
            if pending.step == RESTORE:
                return self._restored(pending, failed)
            if failed is None:
                pending = replace(pending, step=CONFIRM, checks=[c.as_json() for c in self.checks])
                self._remember(pending)
                break
            following = swap.after_failure(
                pending, self._invocation(), f"{failed.id}: {failed.detail}", list(failed.evidence)
            )
            if following is None:
                return self._given_up(pending, failed)
            kept = [c.as_json() for c in self.checks]
            pending = replace(following, checks=kept)
            self._note(f"{failed.id}: {failed.detail}", failed.evidence)
            self._remember(pending)
        return self._confirm(pending)

    def _bring_up(self, pending: Pending) -> Optional[Check]:
        """Make the goal run and gate it. None, or the check that failed: nothing escapes from
        here, since a restore must follow whatever went wrong."""
        self.checks = []
        try:
            failed = self._install_and_start(pending)
            failed = failed or self._gate(pending)
        except (Refused, CallFailed, OSError, ValueError, KeyError) as error:
            failed = Check("swap", FAIL, f"{type(error).__name__}: {error}")
        if failed is not None and all(c.id != failed.id for c in self.checks):
            self._found(failed)
        return failed

    def _install_and_start(self, pending: Pending) -> Optional[Check]:
        """The order is binding: the loaded unit's TimeoutStopSec governs the stop of the old
        release, so nothing is reloaded before it has stopped; the rename is the commit point; a
        start counts against the start limit unless failures are reset."""
        store, systemd, goal = self.world.store, self.world.systemd, pending.goal
        if pending.step == RESTORE:
            self._phase("restore")
        state = systemd.show(store.unit)
        if swap.still_theirs(pending, state):
            return self._exchange(pending)
        if pending.taken and pending.step == TARGET:
            return Check("start", FAIL, "the engine that was to be taken over has ended")
        if swap.brought_up(goal, pending.before, store.standing(), state):
            return None
        self._phase("drain" if state.active == "active" else "stop")
        with self.world.allow(2 * state.stop_limit + 90):
            systemd.stop(store.unit, swap.grace(pending))
        self._retire()
        manifest = store.manifest(goal) or {}
        left = self.world.outside.in_the_way(systemd, manifest)
        if left and pending.step != RESTORE:
            return Check("start", FAIL, "after the stop, " + "; ".join(left))
        self._phase("commit")
        store.install(goal)
        systemd.reload()
        self._enable(manifest)
        if not manifest.get("was_active", True):
            return Check("start", FAIL, "it was not running before the deployment: left stopped")
        self._phase("start")
        systemd.reset_failed(store.unit)
        self.world.eyes.before(manifest)
        systemd.start(store.unit)
        return None

    def _retire(self) -> None:
        other = zero.moved_from(self.world.store)
        if other:
            with self.world.allow(2 * self.world.systemd.show(other).stop_limit + 90):
                zero.retire(self.world.store, self.world.systemd)

    def _exchange(self, pending: Pending) -> Optional[Check]:
        """The unit file alone, under a process that runs on. Each step is repeatable: a guard that
        is run again does all of them again. What systemd counts of the past (its restarts) is not
        this release's."""
        store, systemd = self.world.store, self.world.systemd
        self._phase("commit")
        store.install(pending.goal)
        systemd.reload()
        self._enable(store.manifest(pending.goal) or {})
        systemd.reset_failed(store.unit)
        return None

    def _enable(self, manifest: Mapping[str, Any]) -> None:
        if manifest.get("was_enabled", True):
            self.world.systemd.enable(self.world.store.unit)
        else:
            self.world.systemd.disable(self.world.store.unit)

    def _gate(self, pending: Pending) -> Optional[Check]:
        manifest = self.world.store.manifest(pending.goal) or {}
        gates: Mapping[str, Any] = manifest.get("gates") or {}
        eyes, clock = self.world.eyes, self.world.clock
        eyes.begin(manifest, pending.before)
        if pending.taken and self._invocation() == pending.taken:
            eyes.adopt()
        timing = startup.timing_of(manifest)
        failed = startup.await_ready(eyes, clock, timing, float(gates.get("poll", 2.0)), self._emit)
        if failed is not None:
            return failed
        self._phase("gates")
        for name in ORDER:
            if name == "soak":
                self._phase("soak")
            check = eyes.gate(name)
            if check is None:
                continue
            self._found(check)
            if check.status == FAIL:
                return check
        return None

    # -- the ends

    def _confirm(self, pending: Pending) -> Dict[str, Any]:
        self._phase("confirm")
        store = self.world.store
        state = self.world.systemd.show(store.unit)
        taken = pending.taken if swap.still_theirs(pending, state) else ""
        self._learn(pending.target, state.invocation)
        if taken:
            store.write_taken(pending.target, taken, list(self.document.get("later") or []))
        store.confirm(pending.target, pending.fallback)
        if not taken:
            store.remove_taken()
        store.remove_parked()
        return self._end("confirmed", pending.target, pending=pending)

    def _learn(self, digest: str, invocation: str) -> None:
        eyes, now = self.world.eyes, self.world.clock.now()
        ending.learn(self.world.store, self.run, digest, invocation, eyes.record, now)

    def _restored(self, pending: Pending, failed: Optional[Check]) -> Dict[str, Any]:
        if failed is None:
            self._learn(pending.fallback, self._invocation())
            self.world.store.confirm(pending.fallback, "")
            self.world.store.remove_taken()
            self.world.store.remove_parked()
            return self._end("rolled_back", pending.fallback, pending.cause, pending.log, pending)
        cause = (
            f"{pending.cause}; then the restored release {pending.fallback[:12]} failed too: "
            f"{failed.id}: {failed.detail}"
        )
        log = [*pending.log, *failed.evidence]
        return self._end("failed", pending.fallback, cause, log, pending)

    def _given_up(self, pending: Pending, failed: Check) -> Dict[str, Any]:
        """Nothing to restore. A first deployment is stopped, and is not to start at the next boot;
        a restart of the confirmed release is left to systemd, since it may serve in part."""
        store, systemd = self.world.store, self.world.systemd
        cause = f"{failed.id}: {failed.detail}"
        if pending.fallback:
            state = systemd.show(store.unit)
            left = f"{store.unit} is left {state.active} ({state.sub}) with the confirmed release"
        else:
            left = (
                f"nothing was ever confirmed here: {store.unit} is stopped and disabled; its file "
                f"and release {pending.target[:12]} are left for a look"
            )
            with suppress(CallFailed), self.world.allow(600):
                systemd.stop(store.unit)
            with suppress(CallFailed):
                systemd.disable(store.unit)
            systemd.reset_failed(store.unit)
        return self._end("failed", pending.target, f"{cause}; {left}", failed.evidence, pending)

    def _end(
        self,
        outcome: str,
        release: str,
        cause: str = "",
        log: Optional[List[str]] = None,
        pending: Optional[Pending] = None,
    ) -> Dict[str, Any]:
        """The checks of a run that was rolled back are those of the release that failed: they are
        what the operator wants to see."""
        now = self.world.clock.now()
        began = pending.began if pending is not None and pending.began else now
        mine = [c.as_json() for c in self.checks]
        kept = pending.checks if pending is not None and pending.step != TARGET else mine
        return self._close(
            {
                "outcome": outcome,
                "release": release,
                "target": pending.target if pending is not None else self.document.get("target"),
                "seconds": round(now - began, 1),
                "checks": kept,
                "restored": mine if pending is not None and pending.step == RESTORE else [],
                "cause": cause,
                "log": list(log or []),
            }
        )

    def _close(self, result: Dict[str, Any]) -> Dict[str, Any]:
        return ending.close(self.world.store, self.run, self.document, result, self._emit)

    # -- words and book-keeping

    def _standing(self) -> str:
        return self.world.store.standing()

    def _invocation(self) -> str:
        return self.world.systemd.show(self.world.store.unit).invocation

    def _remember(self, pending: Pending) -> None:
        """A full disk must not stop a restore: the pending of the step before is as good."""
        try:
            try:
                self.world.store.write_pending(pending.as_json())
            except OSError:
                ending.make_room(self.world.store, self.run)
                self.world.store.write_pending(pending.as_json())
        except OSError as error:
            print(f"cannot write pending.json: {error}", file=sys.stderr)

    def _found(self, check: Check) -> None:
        self.checks.append(check)
        self._emit({"event": "gate", "check": check.as_json()})

    def _phase(self, phase: str) -> None:
        self._emit({"event": "phase", "phase": phase})

    def _note(self, text: str, log: List[str]) -> None:
        self._emit({"event": "note", "text": text, "log": list(log)})

    def _emit(self, event: Dict[str, Any]) -> None:
        """Events are for watchers: that one cannot be written must not end the run."""
        if not self.events:
            self.events = len(self.world.store.events(self.run))
        self.events += 1
        head = {"n": self.events, "time": self.world.clock.now()}
        with suppress(OSError):
            self.world.store.emit(self.run, {**head, **event})
