"""What staging needs to know of a host, in one look: the model's files, memory, GPUs, earlier
starts, and what stands there now."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from opsctl.onhost import collect, hostfacts
from opsctl.onhost.store import Places, Store
from opsctl.onhost.systemd import Systemd

TEXTS = ("config.json", "hf_quant_config.json", "generation_config.json")
LARGEST = 1 << 20  # bytes of one such text
MOST_FILES = 2000
MOST_STARTS = 20


def facts(
    places: Places, systemd: Systemd, model: str, draft: Optional[str], service: str
) -> Dict[str, Any]:
    """{"model", "draft", "memory", "gpus", "starts", "running", "service_memory", "standing"}; in
    bytes. `standing`: the service's entry of `collect`."""
    store = Store(service, places)
    state, guard = collect.states(systemd, [service])[0]
    standing = collect.entry(places, state, guard)
    return {
        "schema_version": 1,
        "time": time.time(),
        "model": folder(Path(model)),
        "draft": folder(Path(draft)) if draft else None,
        "memory": hostfacts.meminfo(),
        "gpus": hostfacts.gpus(),
        "starts": store.starts()[:MOST_STARTS],
        "running": standing["start"] if state.active == "active" else None,
        "service_memory": held(state.cgroup),
        "standing": standing,
    }


def folder(path: Path) -> Dict[str, Any]:
    """{"path", "exists", "texts": {name: text}, "files": [{"name", "bytes"}]} of a model."""
    found: List[Dict[str, Any]] = []
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            if entry.is_file() and len(found) < MOST_FILES:
                found.append({"name": entry.name, "bytes": entry.stat().st_size})
    texts = {}
    for name in TEXTS:
        file = path / name
        if file.is_file() and file.stat().st_size <= LARGEST:
            texts[name] = file.read_text(encoding="utf-8", errors="replace")
    return {"path": str(path), "exists": path.is_dir(), "texts": texts, "files": found}


def held(control_group: str) -> Dict[str, Any]:
    """Host memory that would be free again if the service stopped: {"bytes", "basis"}.

    Page cache does not count: it is available already. The kernel's own count of the group where
    there is one, else the processes' resident memory without what is backed by files.
    """
    if not control_group.startswith("/"):
        return {"bytes": 0, "basis": "not running"}
    stat = hostfacts.read(f"/sys/fs/cgroup{control_group}/memory.stat")
    count = dict(line.split(None, 1) for line in stat.splitlines() if " " in line)
    if "anon" in count:
        return {"bytes": int(count["anon"]) + int(count.get("shmem", 0)), "basis": "cgroup"}
    total = 0
    for pid in hostfacts.cgroup_pids(control_group):
        text = hostfacts.read(f"/proc/{pid}/status")
        for line in text.splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * hostfacts.KiB
    return {"bytes": total, "basis": "processes"}
