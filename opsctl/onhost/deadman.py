"""The watchman of a guard: looks every 30 s, by a timer, whether the guard lives.

A guard that is gone or silent is run again once, and goes on where it was. If that one dies too,
the watchman restores the confirmed release by itself. Both hold one flock while they work.
"""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost import ending, files, launch, locks
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import Systemd

DONE, WAIT, RESUME, RESTORE = "done", "wait", "resume", "restore"
GRACE = 10.0  # seconds that a guard may take from being started to its first heartbeat


def decide(over: bool, alive: bool, age: float, stale: float, resumed: int) -> str:
    """What to do. `alive`: its unit is active; `age`: seconds since its last heartbeat."""
    if over:
        return DONE
    if age < (stale if alive else min(GRACE, stale)):
        return WAIT
    return RESUME if resumed == 0 else RESTORE


def look(store: Store, systemd: Systemd, run: str) -> Dict[str, Any]:
    """One look. Raises files.Busy if the guard cannot even be killed; the next look tries again."""
    watch = launch.watch_of(store.run_document(run))
    guard = locks.guard_unit(store.service)
    resumed = (files.read_json(store.run(run) / "resumed.json") or {}).get("times", 0)
    decision = decide(
        ending.over(store, run),
        systemd.show(guard).up,
        store.heartbeat_age(run),
        watch["stale"],
        resumed,
    )
    if decision == DONE:
        systemd.stop_timer(f"{locks.deadman_unit(store.service)}.timer")
    elif decision in (RESUME, RESTORE):
        systemd.kill(guard)
        _count(store, run, resumed + 1)
    if decision == RESUME:
        store.beat(run)
        systemd.run_transient(guard, launch.command(store, run, "guard"))
    elif decision == RESTORE:
        launch.guard(store, systemd, run, force_restore=True)
    return {"decision": decision, "resumed": resumed}


def _count(store: Store, run: str, times: int) -> None:
    path, value = store.run(run) / "resumed.json", {"times": times}
    try:
        files.write_json(path, value)
    except OSError:  # the disk is full: that may be what the guard has died of
        ending.make_room(store, run)
        files.write_json(path, value)
