"""Memory that the other services of this host will still take: promised, and not yet held."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from opsctl.onhost import starts
from opsctl.onhost.store import Places, Refused, Store
from opsctl.onhost.systemd import UnitState


def of(places: Places, state: UnitState, held: int) -> Optional[Dict[str, Any]]:
    """{"service", "state", "enabled", "standing", "expected", "ranks", "process", "held",
    "pinned"}; None for a unit of other hands. `expected`: bytes of all pools that its release was
    forecast to take, None if that is not known; `process`: bytes of one rank beside them, as its
    newest start was measured, None if none was; `standing`: its unit is in place; `pinned`: bytes
    of the pools that the start that runs now has logged, None before it is ready.

    The release is the one that stands in place, else the newest that is staged: of two services
    that are deployed together for the first time, the second must know of the first.
    """
    name = state.name[len("sglang-") : -len(".service")]
    try:
        store = Store(name, places)
    except Refused:
        return None
    standing = store.standing()
    digest = standing or next(iter(store.staged()), "")
    if digest == "foreign":
        return None
    manifest = store.manifest(digest) if digest else None
    if not manifest or not manifest.get("ranks"):
        return None
    expect: Mapping[str, Any] = manifest.get("expect") or {}
    return {
        "service": name,
        "state": state.active,
        "enabled": state.properties.get("UnitFileState", ""),
        "standing": bool(standing),
        "expected": expect.get("host_total"),
        "ranks": len(manifest["ranks"]),
        "process": _process(store, manifest),
        "held": held,
        "pinned": _pinned(store, state),
    }


def _process(store: Store, manifest: Mapping[str, Any]) -> Optional[int]:
    for start in store.starts():
        if start.get("process") and start.get("gpu_key") == manifest.get("gpu_key"):
            return int(start["process"])
    return None


def _pinned(store: Store, state: UnitState) -> Optional[int]:
    """The kernel's count of a service may miss pools that it has long taken (huge pages are in no
    count): what its start has logged is not still to come."""
    if state.active != "active":
        return None
    start = starts.facts(store, state)  # its record, else the journal: no guard saw a hand's start
    if not start.ready:
        return None
    return sum(int(pool["bytes"]) for rank in start.ranks.values() for pool in rank.host_pools)
