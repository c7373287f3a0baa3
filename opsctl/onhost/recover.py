"""At boot, before the engine's units: a swap that a power cut interrupted is settled.

The unit of the last confirmed release is put back in place first, so that nothing unconfirmed
starts; then a guard goes on with the same run, gates what starts, and writes the result. A service
that was stopped for work on the host (parking.py) is started by a guard, too, and by nobody else.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from typing import Callable

from opsctl.onhost import ending, parking, swap, zero
from opsctl.onhost import launch as launching
from opsctl.onhost.store import ZERO, Places, Refused, Store, services
from opsctl.onhost.swap import CONFIRM, Pending
from opsctl.onhost.systemd import CallFailed, Systemd

Launch = Callable[[str, str], None]  # starts guard and dead-man for (service, run)


def recover(places: Places, systemd: Systemd, launch: Launch) -> int:
    """Settle every service; one that cannot be settled must not keep the others from it.

    Answers how many could not be settled. Those too get a guard: nothing is left pending alone.
    """
    failed = 0
    for service in services(places):
        store = Store(service, places)
        try:
            recover_service(store, systemd, launch)
        except (Refused, CallFailed, OSError) as error:
            print(f"{service}: {error}", file=sys.stderr)
            failed += 1
            with suppress(CallFailed, OSError, KeyError, TypeError):
                launch(service, (store.pending() or {})["run"])
    return failed


def recover_service(store: Store, systemd: Systemd, launch: Launch) -> None:
    pending, parked = swap.pending_of(store.pending()), store.parked()
    if parked is not None:
        systemd.stop(store.unit)  # takes its queued start out of this boot: a guard starts it
    if pending is None:
        _without_pending(store, systemd, str((parked or {}).get("run") or ""))
        _gated_start(store, launch)
        return
    known = store.result(pending.run)
    if known is not None and (parked is not None or store.unproven()):
        ending.close(store, pending.run, store.run_document(pending.run), known)
        _gated_start(store, launch)
        return
    if known is None:
        if pending.step == CONFIRM:
            store.confirm(pending.target, pending.fallback)
        following = swap.after_power_cut(pending)
        if following.goal:
            _put_in_place(store, systemd, following.goal)
        else:
            _disarm(store, systemd)
        store.write_pending(following.as_json())
    launch(store.service, pending.run)  # if there is a result, only the last lines are missing


def _without_pending(store: Store, systemd: Systemd, parked: str) -> None:
    """None is there, as nearly always; or it was spoilt, and nobody knows what stands there. A run
    that had only been launched is closed, not begun: by now nobody may expect it any more. So may
    be the one before it, if the last is of a boot like this. Only `parked` waits for this boot; one
    that was parked before it, and never launched, goes without a word."""
    if store.pending_is_there():
        if store.confirmed():
            _put_in_place(store, systemd, store.confirmed())
        store.remove_pending()
    for run in store.runs()[:2]:
        if run != parked and parking.given_up(store, run):
            shutil.rmtree(store.run(run), ignore_errors=True)
        elif run != parked and not ending.over(store, run):
            cause = "the host lost power or was restarted before anything was touched"
            result = ending.untouched(store, run, cause)
            ending.close(store, run, store.run_document(run), result)


def _gated_start(store: Store, launch: Launch) -> None:
    """What this boot may not start by itself, or not ungated."""
    parked = store.parked()
    if parked is not None:
        launch(store.service, parking.next_run(store, parked))
    elif store.unproven():
        _first_start(store, launch)


def _first_start(store: Store, launch: Launch) -> None:
    """This boot starts the confirmed release by its own unit for the first time: its process was
    taken over. A guard gates it, and goes back to the unit that had started that process."""
    run = f"boot-{time.time_ns()}"
    document = {"run": run, "op": "start", "service": store.service, "target": store.confirmed()}
    said = {"owner": "opsctl", "reason": "the first start of what was taken over as it ran"}
    launching.write(store, run, {**document, **said, "created": time.time()})
    pending = Pending(run, "start", store.confirmed(), fallback=ZERO, began=time.time())
    store.write_pending(pending.as_json())
    launch(store.service, run)


def _put_in_place(store: Store, systemd: Systemd, digest: str) -> None:
    zero.retire(store, systemd)
    store.install(digest)
    systemd.reload()
    manifest = store.manifest(digest) or {}
    if manifest.get("was_enabled", True):
        systemd.enable(store.unit)


def _disarm(store: Store, systemd: Systemd) -> None:
    """Nothing was ever confirmed: what was being tried may not start by itself."""
    with suppress(CallFailed):
        systemd.disable(store.unit)
        systemd.stop(store.unit)  # takes its queued start out of this boot
