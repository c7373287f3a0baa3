"""One compound read of the host: all that `status`, `hosts` and `verify` show. Changes nothing.

Few processes are started, the slow ones at once: a host answers in some tenths of a second.
"""

from __future__ import annotations

import os
import platform
import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from opsctl.onhost import gates, gpus, hostfacts, locks, neighbours, probes, starts, systemd, zero
from opsctl.onhost.holding import held
from opsctl.onhost.model import Check, StartFacts
from opsctl.onhost.preflight import Outside
from opsctl.onhost.store import ZERO, Places, Refused, Store, services
from opsctl.onhost.systemd import Systemd, UnitState

_UNIT = re.compile(r"sglang-(.+)\.service")
PROBE_TIMEOUT = 5.0  # seconds; a healthy engine under load may take longer and is then "unhealthy"
UNIT_FOLDERS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


def collect(
    places: Places,
    manager: Systemd,
    wanted: Sequence[str] = (),
    probe: bool = False,
    memory: bool = False,
) -> Dict[str, Any]:
    """The document of docs/architecture.md. `wanted`: only these services, "absent" if unknown.
    `memory`: also who holds GPU memory, which costs a call of nvidia-smi more, and what each
    service of the host will still take of its memory."""
    names = list(wanted) or known(places)
    with ThreadPoolExecutor(8) as pool:
        cards = pool.submit(gpus.report)
        apps = pool.submit(hostfacts.run, hostfacts.PROCESS_QUERY) if memory else None
        version = pool.submit(_systemd_version)
        pairs = states(manager, names, everything=not wanted)
        found: List[Future[Dict[str, Any]]] = [
            pool.submit(entry, places, unit, guard, probe) for unit, guard in pairs
        ]
        answer = {
            "schema_version": 1,
            "host": platform.node(),
            "time": time.time(),
            "boot_id": hostfacts.read("/proc/sys/kernel/random/boot_id").strip(),
            "python": platform.python_version(),
            "os": hostfacts.parse_properties(hostfacts.read("/etc/os-release")).get(
                "PRETTY_NAME", ""
            ),
            "kernel": os.uname().release,
            "systemd": version.result(),
            "memory": hostfacts.meminfo(),
            **cards.result(),
        }
        entries = [future.result() for future in found]
        if apps:
            answer["gpu_processes"] = _holders(apps.result(), answer["gpus"])
            everybody = [unit for unit, _ in states(manager, known(places))]
            answer["others"] = promised(places, everybody)
    answer["services"] = [e for e in entries if e["state"] != "absent" or wanted]
    return answer


def promised(places: Places, units: Sequence[UnitState]) -> List[Dict[str, Any]]:
    """What services will still take; see neighbours."""
    told = (neighbours.of(places, unit, held(unit.cgroup)["bytes"]) for unit in units)
    return [entry for entry in told if entry is not None]


def _holders(text: str, cards: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Processes on the GPUs: {"gpu", "pid", "memory", "comm"}."""
    found = hostfacts.parse_gpu_processes(text, [dict(card) for card in cards])
    for process in found:
        status = hostfacts.parse_status(hostfacts.read(f"/proc/{process['pid']}/status"))
        process["comm"] = status["name"]
    return found


def known(places: Places) -> List[str]:
    """Services with files of ours, and units of whichever hand that are named like ours."""
    names = set(services(places))
    for folder in UNIT_FOLDERS:
        for path in (places.root / folder).glob("sglang-*.service"):
            names.add(_UNIT.fullmatch(path.name)[1])  # type: ignore[index]
    return sorted(names)


def states(
    manager: Systemd, names: Sequence[str], everything: bool = False
) -> List[Tuple[UnitState, UnitState]]:
    """All units with their guards', in one call; the pattern finds those loaded from elsewhere."""
    asked = [f"sglang-{name}.service" for name in names]
    asked += [locks.guard_unit(name) for name in names]
    found = manager.show_all([*asked, *(["sglang-*.service"] if everything else [])])
    # Of a name that is only an alias, systemd tells the unit that it stands for.
    by_name = {state.name: state for state in found}
    by_name.update({name: state.named(name) for name, state in zip(asked, found)})
    pairs = []
    for unit in sorted(name for name in by_name if _UNIT.fullmatch(name)):
        guard = locks.guard_unit(_UNIT.fullmatch(unit)[1])  # type: ignore[index]
        pairs.append((by_name[unit], by_name.get(guard, UnitState(name=guard))))
    return pairs


def entry(
    places: Places, state: UnitState, guard: UnitState, probe: bool = False
) -> Dict[str, Any]:
    """One of the answer's "services"."""
    name = _UNIT.fullmatch(state.name)[1]  # type: ignore[index]
    try:
        store: Optional[Store] = Store(name, places)
    except Refused:  # a unit of other hands whose name could be none of ours
        store = None
    release = standing(store, state)
    manifest = store.manifest(release["running"]) if store and release["running"] else None
    start = starts.facts(store, state)
    health = _health(store, state, start, manifest, probe)
    return {
        "service": name,
        "unit": state.name,
        "state": _state(state, release),
        "sub": state.sub,
        "result": state.result,
        "main_pid": state.main_pid,
        "since": _since(state),
        "restarts": state.restarts,
        "invocation": state.invocation,
        "enabled": state.properties.get("UnitFileState", ""),
        "dropins": state.dropins,
        "masked": zero.unmasking(state.name, store) if zero.masked(state) else "",
        "release": release,
        "manifest": manifest,
        "taken_over": _taken_over(store, state),
        "parked": store.parked() if store else None,
        "lock": locks.told(store, guard) if store else None,
        "run": _run(store, guard),
        "start": start.as_json(),
        "health": health,
        "checks": [c.as_json() for c in _checks(state, start, manifest, health, release)],
        "processes": hostfacts.processes(hostfacts.cgroup_pids(state.cgroup)),
        "memory": held(state.cgroup),
    }


def _state(state: UnitState, release: Mapping[str, Any]) -> str:
    """An engine whose unit file is gone still runs, and is no more absent than its GPU memory."""
    gone = state.load == "not-found" and release["running"] is None
    return "absent" if gone and not state.up else state.active


def standing(store: Optional[Store], state: UnitState) -> Dict[str, Any]:
    """`running` is the release whose unit stands in place, "0" for one of other hands."""
    if store is None:
        return {
            "running": ZERO,
            "confirmed": None,
            "previous": None,
            "pending": None,
            "edited": False,
        }
    standing = store.standing()
    elsewhere = not standing and state.load == "loaded"  # a unit that a package brought
    edited = standing == "foreign" and bool(store.marked(store.unit_path.read_bytes()))
    pending = store.pending() or {}
    theirs, outside = (standing == "foreign" or elsewhere) and not edited, Outside()
    return {
        "running": ZERO if standing == "foreign" or elsewhere else standing or None,
        "confirmed": store.confirmed() or None,
        "previous": store.previous() or None,
        "pending": pending.get("target"),
        "edited": edited,
        "zero": _zero(store),
        "missing": zero.missing_now(state, outside.exists, outside.user_exists) if theirs else [],
    }


def _zero(store: Store) -> Optional[Dict[str, Any]]:
    """The unit that stood there before opsctl, if it is kept: what would keep it from starting,
    whether it hands keys over in its command line, where every user of the host reads them, and
    the unit of another name that it was. `edited`: a unit of other hands stands there again, and
    its text, or that of its drop-ins, is another."""
    unit = store.release_unit(ZERO)
    if unit is None:
        return None
    outside = Outside()
    return {
        "missing": zero.missing(store, outside.exists, outside.user_exists),
        "keys": zero.keys_shown(store),
        "moved_from": zero.moved_from(store) or None,
        "edited": store.zero_edited(),
    }


def _taken_over(store: Optional[Store], state: UnitState) -> Optional[Dict[str, Any]]:
    """Of a process that its release has taken over as it ran: what applies from the next start."""
    taken = store.taken() if store else None
    if not taken or taken["invocation"] != state.invocation or state.active != "active":
        return None
    return {"later": taken["later"]}


def _run(store: Optional[Store], guard: UnitState) -> Optional[Dict[str, Any]]:
    """The last run: what it was, whose, how it ended (null: not yet), and whether it is at work."""
    runs = store.runs() if store else []
    if not store or not runs:
        return None
    phases = [e.get("phase") for e in store.events(runs[0]) if e.get("event") == "phase"]
    result, document = store.result(runs[0]), store.run_document(runs[0])
    told = {
        "run": runs[0],
        "active": result is None and locks.working(store, guard),
        "phase": phases[-1] if phases else None,
        "op": document.get("op"),
        "owner": document.get("owner"),
        "outcome": (result or {}).get("outcome"),
    }
    failed = _failed(store, runs[0])
    return {**told, "failed": failed} if failed else told


def _failed(store: Store, run: str) -> Optional[Dict[str, Any]]:
    """Which release the last run could not bring up, why and when; None if it could."""
    result = store.result(run) or {}
    touched = result.get("checks") or result.get("restored") or result.get("seconds")
    if result.get("outcome") not in ("rolled_back", "failed") or not touched:
        return None
    try:
        when = (store.run(run) / "result.json").stat().st_mtime
    except OSError:
        return None
    return {"release": result.get("target"), "cause": result.get("cause") or "", "time": when}


def _since(state: UnitState) -> float:
    """Seconds since the epoch at which it became active; 0 if it is not."""
    entered = int(state.properties.get("ActiveEnterTimestampMonotonic") or 0)
    if not entered or state.active != "active":
        return 0.0
    return round(time.time() - (time.monotonic() - entered / 1e6), 1)


def _health(
    store: Optional[Store],
    state: UnitState,
    start: StartFacts,
    manifest: Optional[Mapping[str, Any]],
    probe: bool,
) -> str:
    if not state.up:
        return "unknown"
    address = (manifest or {}).get("address")
    if not probe or not store or not manifest or not address:
        return "unknown" if start.ready or not (manifest or {}).get("ranks") else "starting"
    key = manifest.get("api_key_file")
    key_file = str(store.release(manifest["digest"]) / key) if key else None
    answer = probes.send(address, probes.health(), PROBE_TIMEOUT, key_file)
    if answer.status == 200:
        return "ok"
    if not start.ready:
        return "starting"
    return "unhealthy" if answer.status or "within" in answer.error else "unreachable"


def _checks(
    state: UnitState,
    start: StartFacts,
    manifest: Optional[Mapping[str, Any]],
    health: str,
    release: Mapping[str, Any],
) -> List[Check]:
    """The gates that cost nothing. While a start is under way its ranks cannot be judged."""
    if state.active in ("inactive", "") and state.result in ("success", ""):
        return []  # stopped, or never started: nothing to judge
    found = [gates.unit(state.properties, state.invocation, start)]
    if release["running"] != ZERO or release["edited"]:  # nothing is promised of other hands' units
        found.append(gates.drift(release, state.properties))
    if manifest and manifest.get("ranks") and (start.ready or health == "ok"):
        found.append(gates.ranks(manifest, start))
    if manifest and "min_available" in (manifest.get("memory") or {}) and state.active == "active":
        # Processes of strangers on the GPUs are `verify`'s business: asking costs a second.
        found.append(gates.memory(hostfacts.meminfo(), manifest["memory"], None, ()))
    return found


def _systemd_version() -> int:
    try:
        _, out, _ = systemd.call(["systemctl", "--version"], 10)
    except systemd.CallFailed:
        return 0
    found = re.search(r"systemd (\d+)", out)
    return int(found[1]) if found else 0
