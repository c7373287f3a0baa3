"""Stopping a service, and taking it off the host."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

from opsctl.onhost import files, locks
from opsctl.onhost.store import ZERO, Refused, Store
from opsctl.onhost.systemd import CallFailed, Systemd


def stop(store: Store, systemd: Systemd) -> Dict[str, Any]:
    """Drain and stop: the engine drains on SIGTERM, for as long as the unit's TimeoutStopSec
    allows. Raises Refused while a guard is at work."""
    began = time.monotonic()
    with _audited(store, "stop", "stopped", began):
        _no_guard(store, systemd)
        systemd.stop(store.unit)
        systemd.reset_failed(store.unit)
    return {"state": systemd.show(store.unit).active, "seconds": _since(began)}


def remove(store: Store, systemd: Systemd) -> Dict[str, Any]:
    """Stop, disable, delete unit and releases. The history stays, and so does what stood there
    before opsctl (release 0): it is somebody else's."""
    began = time.monotonic()
    with _audited(store, "remove", "removed", began):
        kept = _take_off(store, systemd)
    return {"removed": True, "kept": [*kept, str(store.var)], "seconds": _since(began)}


def _take_off(store: Store, systemd: Systemd) -> List[str]:
    """What is left of the releases."""
    _no_guard(store, systemd)
    standing = store.standing()
    if standing == "foreign" and not store.marked(files.read(store.unit_path) or b""):
        raise Refused(
            f"{store.unit} was not written by opsctl", hint=f"systemctl cat {store.unit} shows it"
        )
    systemd.stop(store.unit)
    if standing:
        systemd.disable(store.unit)
        files.remove(store.unit_path)
        systemd.reload()
    systemd.reset_failed(store.unit)
    for digest in store.staged():
        if digest != ZERO:
            shutil.rmtree(store.release(digest))
    for path in (
        store.var / "confirmed",
        store.var / "taken.json",
        store.var / "parked.json",
        store.etc / "current",
        store.etc / "previous",
    ):
        files.remove(path)
    kept = [str(store.release(ZERO))] if store.release(ZERO).is_dir() else []
    if not kept:
        shutil.rmtree(store.etc, ignore_errors=True)
    return kept


def _no_guard(store: Store, systemd: Systemd) -> None:
    if locks.working(store, systemd.show(locks.guard_unit(store.service))):
        raise Refused(f"a guard is at work on {store.service}", hint="wait for its result")


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


@contextmanager
def _audited(store: Store, op: str, outcome: str, began: float) -> Iterator[None]:
    """One line in the history, however it ends: also of what was refused or went wrong."""
    cause = ""
    try:
        yield
    except (Refused, CallFailed, OSError) as error:
        outcome, cause = "failed", str(error)
        raise
    finally:
        lock = locks.read(store) or {}
        if store.var.is_dir():
            entry = {key: lock.get(key) for key in ("run", "owner", "reason")}
            entry.update({"op": op, "outcome": outcome, "cause": cause, "seconds": _since(began)})
            store.audit({"time": time.time(), **entry})
