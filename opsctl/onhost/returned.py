"""Whether a host that was booted anew is as it was promised before: asked by the guard that starts
a parked service, before its engine touches a GPU."""

from __future__ import annotations

from typing import Any, List, Mapping

from opsctl.onhost.doctor import driver, gpu, look, smi
from opsctl.onhost.doctor.fault import FAIL
from opsctl.onhost.parking import DRIVER, GPUS_BEFORE, UNITS
from opsctl.onhost.store import Places
from opsctl.onhost.systemd import Systemd


def problems(must: Mapping[str, Any], places: Places, systemd: Systemd) -> List[str]:
    """`must`: {"driver": the version that the kernel has to run, "gpus": how many were well before,
    "units": those that have to be active}; each may be left out."""
    return judge(must, look.look(places, systemd, []))


def judge(must: Mapping[str, Any], seen: Mapping[str, Any]) -> List[str]:
    """Pure; `seen`: look.look's. What doctor finds wrong with driver and cards counts if it would
    keep a release from starting; an Xid of this boot always does."""
    judged = [*driver.judge(seen), *gpu.judge(seen)]
    found = [f.detail for f in judged if f.status == FAIL and (f.blocks or f.check == "xid")]
    loaded, wanted = smi.version(seen), must.get(DRIVER)
    if wanted and loaded != wanted:
        found.append(f"the kernel runs {f'driver {loaded}' if loaded else 'no driver'}, {wanted} "
                     "is installed")  # fmt: skip
    well = len(gpu.free(smi.known(seen)))
    if well < int(must.get(GPUS_BEFORE) or 0):
        found.append(f"{well} GPUs are well, {must[GPUS_BEFORE]} were before")
    for unit in must.get(UNITS) or ():
        active = (seen["units"].get(unit) or {}).get("active") or "not known"
        if active != "active":
            found.append(f"{unit} is {active}")
    return list(dict.fromkeys(found))
