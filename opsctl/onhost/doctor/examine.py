"""`doctor`: one look at the host, then what is wrong with it. Also the preconditions of a rollout:
one implementation, of which a preflight asks only what would keep its release from starting."""

from __future__ import annotations

import platform
import time
from typing import Any, Dict, List, Mapping, Sequence

from opsctl.onhost.doctor import driver, folders, gpu, host, look, service, servicelook, topology
from opsctl.onhost.doctor.fault import Fault, Finding, Found, Problem
from opsctl.onhost.store import Places
from opsctl.onhost.systemd import Systemd

JUDGES = (host, driver, gpu, topology, service)
ASKED_ELSEWHERE = ("model-missing", "engine-missing")  # preflight tells every path that is absent
FAULTS: Dict[str, Fault] = {
    name: fault for module in JUDGES for name, fault in module.FAULTS.items()
}


def doctor(
    places: Places, systemd: Systemd, manifests: Sequence[Mapping[str, Any]]
) -> Dict[str, Any]:
    """{"host", "time", "checks": [{"id", "status", "detail", "cause", "hint", "fault",
    "service"}]}. `manifests`: of the services described for this host; what else stands here is
    judged by its own. Changes nothing."""
    began = time.time()
    seen = look.look(places, systemd, manifests)
    return {
        "schema_version": 1,
        "host": platform.node(),
        "time": began,
        "checks": [one.as_json() for one in judge(seen)],
    }


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    """Everything that is found in one look (pure)."""
    return [one for module in JUDGES for one in module.judge(seen)]


def preconditions(manifest: Mapping[str, Any], systemd: Systemd) -> List[str]:
    """What of this host would keep a release from starting, beside its port, its user, the disk
    and strangers on its GPUs, which preflight asks by itself."""
    found = Found(folders.FAULTS)
    one = {
        "service": str(manifest.get("service") or ""),
        "manifest": manifest,
        "user": servicelook.user(str(manifest.get("user") or "")),
        **servicelook.folders(manifest),
    }
    folders.models(one, found)
    folders.environment(one, "", found)
    blocking = found.list
    if manifest.get("needs"):  # else an engine on the CPU, or one of which nothing is known
        blocking = [*blocking, *before(look.look_before(systemd), manifest)]
    return [
        Problem(one.detail, one.mend)
        for one in blocking
        if one.blocks and one.fault not in ASKED_ELSEWHERE
    ]


def problem(text: str, fault: str, **fill: object) -> Problem:
    """Found by a preflight itself, with the command that doctor names for it."""
    return Problem(text, FAULTS[fault].mend.format(**fill))


def before(seen: Mapping[str, Any], manifest: Mapping[str, Any]) -> List[Finding]:
    """What a look before a start tells against a release (pure)."""
    found = host.blocking(seen)
    found += driver.blocking(seen, manifest)
    return found + gpu.blocking(seen, manifest)
