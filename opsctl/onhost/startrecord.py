"""What a confirmed start leaves for the forecasts after it: starts/INVOCATION.json.

Beside what the journal tells (StartFacts): with which settings, how long each phase took, how much
of the model was in the page cache at the beginning, and what the host's memory shows.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from opsctl.onhost import hostfacts, kernelcache, modelfiles, pagecache, phases
from opsctl.onhost.model import StartFacts

# A rank's process has Python, torch and CUDA loaded, which is more than this: a count that leaves
# less beside the pools has missed something. A judgement.
LEAST = 256 << 20  # bytes


def begun(manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """The host just before systemd is asked for a start, with the one before ended: a moment
    later its processes hold memory already. `starts`: the recorded ones, the newest first."""
    path = (manifest.get("model") or {}).get("path")
    files = modelfiles.weights(Path(path)) if path else []
    kernels = kernelcache.of(f"/var/cache/opsctl/{manifest.get('service')}", starts)
    version = (manifest.get("engine") or {}).get("version")
    return {
        "kernels": bool(kernels["files"]) and kernels["engine_version"] == version,
        "time": time.time(),
        "available": hostfacts.meminfo()["available"],
        "cached": pagecache.share(files),
        "model_bytes": sum(size for _, size in files) or None,
    }


def standing(facts: StartFacts, held: int) -> Dict[str, Any]:
    """The host once the start is done. `held`: memory of the service, see holding.held."""
    ranks = {}
    for name, rank in facts.ranks.items():
        status = hostfacts.parse_status(hostfacts.read(f"/proc/{rank.pid}/status"))
        if rank.pid and status["name"]:
            ranks[name] = {"pid": rank.pid, "rss": status["rss"], "shared": status["shared"]}
    return {"available": hostfacts.meminfo()["available"], "service": held, "ranks": ranks}


def record(
    facts: StartFacts,
    manifest: Mapping[str, Any],
    begin: Mapping[str, Any],
    ready: Mapping[str, Any],
) -> Dict[str, Any]:
    """The record. Pure; `ready` may be empty, and so may `begin`: nobody looked before a start that
    was taken over, or whose guard was run again. What it holds is then measured at another moment
    than that of other starts, and tells nothing of them."""
    model = manifest.get("model") or {}
    engine = manifest.get("engine") or {}
    available = begin.get("available")
    return {
        **facts.as_json(),
        "engine_version": facts.engine_version or str(engine.get("version") or ""),
        "model": {
            "path": model.get("path"),
            "draft_path": model.get("draft_path"),
            "bytes": begin.get("model_bytes"),
        },
        "flags": dict(manifest.get("flags") or {}),
        "env": dict(manifest.get("env") or {}),
        "gpus": manifest.get("gpus"),
        "seconds": phases.seconds(facts),
        "cached": begin.get("cached"),
        "kernels": begin.get("kernels"),
        "memory": {
            "begin": available,
            "ready": ready.get("available"),
            "service": ready.get("service"),
            "ranks": ready.get("ranks") or {},
        },
        "process": process(facts, available, ready) if begin else None,
    }


def process(facts: StartFacts, available: Optional[int], ready: Mapping[str, Any]) -> Optional[int]:
    """Host memory of one rank beside its pools: the whole service's, shared out. None if unknown.

    The kernel's count of the service, where it holds at least the pools: pools in huge pages are
    in no count, nor is memory that a driver keeps for itself. Else what the host has less than at
    the beginning. Neither is believed if it leaves less than LEAST a rank beside the pools.
    """
    count = len(facts.ranks)
    pools = sum(int(p["bytes"]) for rank in facts.ranks.values() for p in rank.host_pools)
    if not count:
        return None
    taken = [int(ready.get("service") or 0)]
    if available is not None and ready.get("available") is not None:
        taken.append(available - int(ready["available"]))
    for figure in taken:
        if figure >= pools + count * LEAST:
            return (figure - pools) // count
    return None
