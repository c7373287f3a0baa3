"""Starting a guard and its dead-man as transient units; and what runs inside the guard's."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Dict, List, Mapping, Optional

from opsctl.onhost import bundle, ending, files, locks, swap
from opsctl.onhost.gating import Sight
from opsctl.onhost.guard import Guard, World
from opsctl.onhost.heart import Heart
from opsctl.onhost.preflight import Outside
from opsctl.onhost.store import Refused, Store
from opsctl.onhost.systemd import Systemd

KEPT_RUNS = 30
WATCH = {"every": 30.0, "stale": 120.0}  # seconds; a run's "watch" may shorten them for drills


def launch(store: Store, systemd: Systemd, document: Mapping[str, Any]) -> Dict[str, Any]:
    """Start a run and return at once. Asking twice for the same run starts it once.

    Raises Refused, or locks.Held.
    """
    _check(store, systemd, document)
    run = str(document["run"])
    at_work = systemd.show(locks.guard_unit(store.service)).up
    if (store.run(run) / "run.json").exists() and (at_work or store.result(run) is not None):
        return {"launched": False, "run": run}
    if at_work:
        raise Refused(f"a guard is at work on {store.service} already", hint="opsctl status")
    write(store, run, document)
    start(store, systemd, run)
    _prune(store)
    return {"launched": True, "run": run}


def prepare(store: Store, systemd: Systemd, document: Mapping[str, Any]) -> str:
    """Write down a run that somebody launches later; its name. Raises Refused, or locks.Held."""
    _check(store, systemd, document)
    write(store, str(document["run"]), document)
    return str(document["run"])


def _check(store: Store, systemd: Systemd, document: Mapping[str, Any]) -> None:
    run = str(document.get("run") or "")
    store.run(run)  # is it a name that can be one?
    if document.get("service") != store.service:
        raise Refused(f"the run is of service {document.get('service')!r}, not {store.service!r}")
    if document.get("op") not in swap.OPS:
        raise Refused(f"unknown operation {document.get('op')!r}; allowed: {', '.join(swap.OPS)}")
    if document.get("target"):
        store.release(str(document["target"]))
    _own_lock(store, systemd, run)


def write(store: Store, run: str, document: Mapping[str, Any]) -> None:
    """The run's folder: what to do, and the program that does it."""
    folder = store.run(run)
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "onhost.pyz", bundle.build())
    files.reserve(folder / ending.RESERVE, ending.RESERVED)
    files.write_json(folder / "run.json", dict(document))


def _own_lock(store: Store, systemd: Systemd, run: str) -> None:
    lock = locks.told(store, systemd.show(locks.guard_unit(store.service)))
    if lock is None:
        raise Refused(f"run {run} does not hold the lock of {store.service}", hint="lock it first")
    if lock.get("run") != run:
        raise locks.Held(lock)


def start(store: Store, systemd: Systemd, run: str) -> None:
    """The watchman first: there is never a guard that nobody watches."""
    watch = watch_of(store.run_document(run))
    timer = locks.deadman_unit(store.service)
    systemd.stop_timer(f"{timer}.timer")
    store.beat(run)
    systemd.run_transient(timer, command(store, run, "deadman"), every=watch["every"])
    systemd.run_transient(locks.guard_unit(store.service), command(store, run, "guard"))


def watch_of(document: Mapping[str, Any]) -> Dict[str, float]:
    return {**WATCH, **(document.get("watch") or {})}


def command(store: Store, run: str, verb: str) -> List[str]:
    """The run's own copy of the program: the guard, resumed or not, is one version throughout."""
    program = str(store.run(run) / "onhost.pyz")
    return [sys.executable, "-I", program, verb, store.service, run]


def _prune(store: Store) -> None:
    for run in store.runs()[KEPT_RUNS:]:
        shutil.rmtree(store.run(run), ignore_errors=True)


def guard(
    store: Store, systemd: Systemd, run: str, force_restore: bool = False, patience: float = 10.0
) -> Dict[str, Any]:
    """Be the guard until the run has ended. Raises files.Busy if another one is."""
    document: Optional[Mapping[str, Any]] = store.run_document(run)
    with files.flock(store.var / "flock", patience):
        heart = Heart(lambda: store.beat(run))
        heart.start()
        try:
            sight = Sight(store, systemd, heart)
            world = World(store, systemd, sight, heart, Outside(), heart.allow)
            return Guard(world, run, document or {}).execute(force_restore)
        finally:
            heart.stop()
            if store.result(run) is not None and not store.pending_is_there():
                systemd.stop_timer(f"{locks.deadman_unit(store.service)}.timer")
