"""The lock of a service: who works on it, why, and since when. It outlives whoever took it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Dict, Optional

from opsctl.onhost import files
from opsctl.onhost.store import Refused, Store
from opsctl.onhost.systemd import Systemd, UnitState

ABANDONED = 900.0  # seconds; the dead-man looks every 30


class Held(Exception):
    """Another run holds the lock. `lock` has its owner, reason, run, since and state."""

    def __init__(self, lock: Dict[str, Any]) -> None:
        super().__init__(f"held by {lock.get('owner')}")
        self.lock = lock


def guard_unit(service: str) -> str:
    return f"opsctl-guard-{service}.service"


def deadman_unit(service: str) -> str:
    return f"opsctl-deadman-{service}"


def read(store: Store) -> Optional[Dict[str, Any]]:
    """The lock as it is, None if there is none. One that cannot be read is still a lock."""
    path = store.var / "lock.json"
    if not path.exists():
        return None
    return files.read_json(path) or {"owner": "unknown", "reason": "", "run": "", "since": 0.0}


def working(store: Store, guard: UnitState) -> bool:
    """Whether a guard is at work, or is about to be run again. `guard`: its unit's state.

    A pending swap whose guard has been silent for ABANDONED has lost its dead-man too (its run's
    folder is gone, or the disk is full): nobody will finish it but the next run.
    """
    if guard.up or not store.pending_is_there():
        return guard.up
    run = str((store.pending() or {}).get("run") or "")
    try:
        return store.heartbeat_age(run) < ABANDONED
    except Refused:
        return False


def told(store: Store, guard: UnitState) -> Optional[Dict[str, Any]]:
    """The lock with what it is about, for whoever is kept out by it.

    `state`: "working" (its guard is at work), "over" (its run has ended: it was left behind), or
    "waiting" (not launched: another host's turn, or its controller has died).
    """
    lock = read(store)
    if lock is None:
        return None
    run = str(lock.get("run") or "")
    with contextlib.suppress(Refused):
        if run and store.result(run) is not None:
            return {**lock, "state": "over", "hint": f"opsctl unlock {store.service}"}
    if working(store, guard):
        return {**lock, "state": "working", "hint": f"opsctl status {store.service}"}
    hint = f"ask the owner; if nobody works on it any more: opsctl unlock {store.service}"
    if (store.parked() or {}).get("run") == run:
        hint = f"its host is being worked on, and starts it again when that is done; {hint}"
    return {**lock, "state": "waiting", "hint": hint}


def take(store: Store, systemd: Systemd, owner: str, reason: str, run: str) -> Dict[str, Any]:
    """Take the lock; taking it again for the same run changes nothing. Raises Held, Refused."""
    store.run(run)  # is it a name that can be one?
    store.var.mkdir(parents=True, exist_ok=True)
    lock = {"owner": owner, "reason": reason, "run": run, "since": time.time()}
    temporary = store.var / f".lock.{os.urandom(4).hex()}"
    files.write(temporary, json.dumps(lock).encode() + b"\n")
    try:
        os.link(str(temporary), str(store.var / "lock.json"))  # fails if it is there: atomic
    except FileExistsError:
        held = told(store, systemd.show(guard_unit(store.service)))
        if held is not None and held.get("run") != run:
            raise Held(held) from None
    finally:
        os.unlink(str(temporary))
    files.sync_folder(store.var)
    return {"locked": True, "run": run}


def free(
    store: Store, systemd: Systemd, run: str, by: str = "", reason: str = ""
) -> Dict[str, Any]:
    """Give the lock back. Raises Refused if it is another run's, or its guard is at work.

    `by` (user@controller) takes away a lock that is not theirs, and that stands in the audit.
    """
    lock = told(store, systemd.show(guard_unit(store.service)))
    if lock is None:
        return {"unlocked": False, "run": run}
    if lock.get("run") not in (run, ""):
        raise Refused(f"the lock is held by run {lock['run']} of {lock['owner']}, not by {run}")
    if lock["state"] == "working":
        raise Refused(f"the guard of run {run} is at work", hint=lock["hint"])
    files.remove(store.var / "lock.json")
    if by:
        entry = {"op": "unlock", "outcome": "unlocked", "owner": by, "reason": reason, "run": run}
        store.audit({"time": time.time(), **entry, "cause": f"the lock was {lock.get('owner')}'s"})
    return {"unlocked": True, "run": run}
