"""What a forecast needs to know of a host, in one look: the model's files, memory, GPUs, earlier
starts, what stands there now, and who else will take memory."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import (
    cgroups,
    collect,
    files,
    gpufacts,
    hostfacts,
    kernelcache,
    modelfiles,
    numa,
    prefill,
    process,
    storage,
    unitfacts,
    zero,
)
from opsctl.onhost.holding import held
from opsctl.onhost.store import ZERO, Places, Store
from opsctl.onhost.systemd import Systemd, UnitState

MOST_STARTS = 20


def facts(
    places: Places,
    systemd: Systemd,
    model: str,
    draft: Optional[str],
    service: str,
    with_process: bool = False,
    takes_over: str = "",
) -> Dict[str, Any]:
    """The document of docs/architecture.md; sizes in bytes. `standing`: the service's entry of
    `collect`; `with_process`: with the engine's arguments and variables, keys among them, if it is
    of other hands. `takes_over`: a unit that gives its memory and GPUs back for this service. The
    slow looks run at once."""
    store = Store(service, places)
    with ThreadPoolExecutor(5) as pool:
        cards = pool.submit(gpufacts.report)
        model_folder = pool.submit(_folder, model, places.root)
        draft_folder = pool.submit(_folder, draft, places.root) if draft else None
        (state, guard), others = _states(places, systemd, service)
        served = pool.submit(prefill.of, state.name) if state.active == "active" else None
        standing = collect.entry(places, state, guard)
        starts = store.starts()[:MOST_STARTS]
        replaced = systemd.show(takes_over) if takes_over else UnitState()
        groups = {unit.name: hostfacts.cgroup_pids(unit.cgroup) for unit in [state, *others]}
        found = {
            "schema_version": 1,
            "time": time.time(),
            "memory": hostfacts.meminfo(),
            "nodes": numa.nodes(),
            "hugepages": numa.hugepages(),
            "starts": starts,
            "running": standing["start"] if state.active == "active" else None,
            "service_memory": _back(state, replaced),
            "cgroups": cgroups.of(state.properties, state.name),
            "unit": unitfacts.of(state.properties),
            "driver": unitfacts.driver(),
            "container": unitfacts.container(),
            "shm": unitfacts.shm(),
            "kernels": kernelcache.of(f"/var/cache/opsctl/{service}", starts),
            "others": collect.promised(places, others),
            "standing": standing,
        }
        if with_process:
            found["process"] = _process(store, state, standing)
        gpus, processes = cards.result()
        found["model"] = model_folder.result()
        found["draft"] = draft_folder.result() if draft_folder else None
        found["prefill"] = served.result() if served else None
    owner = {pid: _service(name) for name, pids in groups.items() for pid in pids}
    owner.update(dict.fromkeys(hostfacts.cgroup_pids(replaced.cgroup), service))
    return {
        **found,
        "gpus": gpus,
        "gpu_strangers": gpufacts.strangers(processes, owner, service),
    }


def _folder(path: str, root: Path) -> Dict[str, Any]:
    """One whose file system does not answer is not read: the call would end with nothing told."""
    found = storage.silent([path])
    if path in found:
        return modelfiles.unread(path, storage.told(path, found[path]))
    return modelfiles.folder(Path(path), root)


def _back(state: UnitState, replaced: UnitState) -> Dict[str, Any]:
    """Memory that comes back when the service and the unit that it replaces have stopped."""
    own, other = held(state.cgroup), held(replaced.cgroup)
    return {**(own if own["bytes"] else other), "bytes": own["bytes"] + other["bytes"]}


def _process(store: Store, state: UnitState, standing: Mapping[str, Any]) -> Optional[str]:
    """The main process of a unit of other hands, sealed; None of our own, or where none runs."""
    release = standing["release"]
    if release["running"] != ZERO or release["edited"] or state.active != "active":
        return None
    told = process.of(state.main_pid) if state.main_pid else None
    if told is None:
        return None
    unit = {
        "stale": _edited(store, state, told["started"]),
        "enabled": state.properties.get("UnitFileState", ""),
        "link": os.readlink(str(store.unit_path)) if store.unit_path.is_symlink() else "",
        "staying": zero.staying(store, state),
        **zero.set_aside(store, state),
    }
    return process.sealed({**told, "invocation": state.invocation, "unit": unit})


def _edited(store: Store, state: UnitState, started: float) -> bool:
    """Whether the unit's text is another than the process was started with, as far as times tell:
    systemd says so only until it has read it again. What is release 0 byte for byte was written
    anew, and not edited."""
    if state.properties.get("NeedDaemonReload") == "yes":
        return True
    if store.release_unit(ZERO) is not None and not store.zero_edited():
        return False
    paths = [state.properties.get("FragmentPath", ""), *state.dropins]
    return any(files.changed(path) > started for path in paths if path)


def _states(
    places: Places, systemd: Systemd, service: str
) -> Tuple[Tuple[UnitState, UnitState], List[UnitState]]:
    """The service's unit and guard, and the other services' units, in one call."""
    names = sorted({service, *collect.known(places)})
    pairs = {unit.name: (unit, guard) for unit, guard in collect.states(systemd, names)}
    mine = pairs.pop(f"sglang-{service}.service")
    return mine, [unit for unit, _ in pairs.values()]


def _service(unit: str) -> str:
    return unit[len("sglang-") : -len(".service")]
