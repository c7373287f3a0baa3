"""Host memory that a service holds."""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost import hostfacts


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
