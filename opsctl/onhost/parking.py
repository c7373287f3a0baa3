"""A service that is stopped for work on its host (a driver, a reboot), and shall run again.

`parked.json` is written before the stop. From then on no boot starts the service by itself: the
boot unit takes its queued start away and launches a guard in its place, which asks `doctor` first.
So it comes back without anybody's connection, and never on a driver that is not well. The file
goes when a start of the service is confirmed, whoever asked for it.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Mapping

from opsctl.onhost import files, launch, locks, stage
from opsctl.onhost.store import Refused, Store
from opsctl.onhost.systemd import Systemd

PARKS = "parks"  # of a run that is only written down: a boot launches it, or nobody does
GPUS_BEFORE, DRIVER, UNITS = "gpus", "driver", "units"


def park(store: Store, systemd: Systemd, document: Mapping[str, Any]) -> Dict[str, Any]:
    """Note the run that starts the service again; stops nothing. Asked again for the same run, what
    it says counts from then on. The host's copy of this program is renewed, since it is that copy
    that a boot runs. Raises Refused, or locks.Held."""
    if document.get("op") != "start":
        raise Refused(f"only a start can be parked, not {document.get('op')!r}")
    if systemd.show(locks.guard_unit(store.service)).up:
        raise Refused(f"a guard is at work on {store.service} already", hint="opsctl status")
    run = launch.prepare(store, systemd, {**document, PARKS: True})
    stage.renew(store.places, systemd)
    store.write_parked({"run": run, "reason": document.get("reason"), "since": time.time()})
    return {"parked": True, "run": run}


def given_up(store: Store, run: str) -> bool:
    """Whether a run was parked and never launched: another took its place, and it touched nothing,
    so that there is no end of it to tell."""
    return bool(store.run_document(run).get(PARKS)) and not (store.run(run) / "heartbeat").exists()


def next_run(store: Store, parked: Mapping[str, Any]) -> str:
    """The run that this boot launches. One that came to an end without a start that was confirmed
    is not run again: the next boot gets a run of its own with the same demands."""
    run = str(parked.get("run") or "")
    if run and store.result(run) is None and (store.run(run) / "run.json").exists():
        return run
    fresh = f"boot-{time.time_ns()}"
    before: Mapping[str, Any] = files.read_json(store.run(run) / "run.json") or {} if run else {}
    document = {"op": "start", "service": store.service, "target": None, "owner": "opsctl",
                "reason": "the host was booted", **before, "run": fresh}  # fmt: skip
    launch.write(store, fresh, document)
    store.write_parked({**parked, "run": fresh})
    return fresh
