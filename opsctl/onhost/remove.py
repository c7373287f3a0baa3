"""Stopping a service, and taking it off the host."""

from __future__ import annotations

import shutil
import time
from typing import Any, Dict

from opsctl.onhost import files, locks
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import Systemd


def stop(store: Store, systemd: Systemd) -> Dict[str, Any]:
    """Drain and stop: the engine drains on SIGTERM, for as long as the unit's TimeoutStopSec
    allows. Raises Refused while a guard is at work."""
    _no_guard(store, systemd)
    began = time.monotonic()
    systemd.stop(store.unit)
    systemd.reset_failed(store.unit)
    seconds = round(time.monotonic() - began, 1)
    _audit(store, "stop", "stopped", seconds)
    return {"state": systemd.show(store.unit).active, "seconds": seconds}


def remove(store: Store, systemd: Systemd) -> Dict[str, Any]:
    """Stop, disable, delete unit and releases. The history stays, and so does what stood there
    before opsctl (release 0): it is somebody else's."""
    _no_guard(store, systemd)
    standing = store.standing()
    if standing == "foreign" and not store.marked(files.read(store.unit_path) or b""):
        raise Refused(f"{store.unit} was not written by opsctl", hint="remove it by hand")
    began = time.monotonic()
    systemd.stop(store.unit)
    if standing:
        systemd.disable(store.unit)
        files.remove(store.unit_path)
        systemd.reload()
    systemd.reset_failed(store.unit)
    for digest in store.staged():
        if digest != ZERO:
            shutil.rmtree(store.release(digest))
    for path in (store.var / "confirmed", store.etc / "current", store.etc / "previous"):
        files.remove(path)
    kept = [str(store.release(ZERO))] if store.release(ZERO).is_dir() else []
    if not kept:
        shutil.rmtree(store.etc, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    _audit(store, "remove", "removed", seconds)
    return {"removed": True, "kept": [*kept, str(store.var)], "seconds": seconds}


def _no_guard(store: Store, systemd: Systemd) -> None:
    if locks.working(store, systemd.show(locks.guard_unit(store.service))):
        raise Refused(f"a guard is at work on {store.service}", hint="wait for its result")


def _audit(store: Store, op: str, outcome: str, seconds: float) -> None:
    lock = locks.read(store) or {}
    if store.var.is_dir():
        entry = {key: lock.get(key) for key in ("run", "owner", "reason")}
        store.audit(
            {"time": time.time(), "op": op, "outcome": outcome, "seconds": seconds, **entry}
        )
