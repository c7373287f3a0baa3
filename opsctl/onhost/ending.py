"""How a run ends on disk."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Callable, Dict, Mapping, Optional

from opsctl.onhost import files
from opsctl.onhost.store import Store

# Kept free while a run is at work, so that its result can be written on a disk that filled up.
RESERVE, RESERVED = "reserve", 256 << 10

Emit = Callable[[Dict[str, Any]], None]


def make_room(store: Store, run: str) -> None:
    files.remove(store.run(run) / RESERVE)


def learn(
    store: Store,
    run: str,
    digest: str,
    invocation: str,
    record: Callable[[], Dict[str, Any]],
    now: float,
) -> None:
    """Record a start that has passed every gate, whichever release it was asked for: what runs
    from now on has to be known by its figures, not by a guess. It is worth no failure of the run.
    `now`: seconds since the epoch."""
    key = (store.manifest(digest) or {}).get("gpu_key")
    make_room(store, run)
    with suppress(OSError):
        store.write_start(invocation, {**record(), "digest": digest, "gpu_key": key, "time": now})


def over(store: Store, run: str) -> bool:
    """Whether nothing at all is left to do for a run."""
    pending = store.pending()
    mine = pending is not None and pending.get("run") == run
    return store.result(run) is not None and _told(store, run) and not mine


def _told(store: Store, run: str) -> bool:
    return any(event.get("event") == "result" for event in store.events(run))


def close(
    store: Store,
    run: str,
    document: Mapping[str, Any],
    result: Dict[str, Any],
    emit: Optional[Emit] = None,
) -> Dict[str, Any]:
    """Write the result, then take `pending.json` away: whoever comes after a crash in between
    finds the result, and only repeats what follows here. Answers the result that counts."""
    make_room(store, run)
    known = store.result(run)
    if known is None:
        store.write_result(run, result)
    else:
        result = known
    pending = store.pending()
    if pending is not None and pending.get("run") == run:
        store.remove_pending()
    if not _told(store, run):
        entry = {key: document.get(key) for key in ("run", "op", "owner", "reason")}
        entry.update({key: result[key] for key in ("outcome", "release", "seconds", "cause")})
        if result["outcome"] == "rolled_back":  # `release` is the one that serves again
            entry["failed"] = result.get("target") or document.get("target")
        with suppress(OSError):
            store.audit({"time": time.time(), **entry})
        event = {"event": "result", **result}
        if emit is not None:
            emit(event)
        else:
            store.emit(run, {"n": len(store.events(run)) + 1, "time": time.time(), **event})
    return result


def untouched(store: Store, run: str, cause: str) -> Dict[str, Any]:
    """The result of a run that ended before it touched anything."""
    document = store.run_document(run)
    return {
        "outcome": "failed",
        "release": store.standing(),
        "target": document.get("target"),
        "seconds": 0.0,
        "checks": [],
        "restored": [],
        "cause": cause,
        "log": [],
    }
