"""Host memory that a service holds."""

from __future__ import annotations

from typing import Any, Dict

from opsctl.onhost import hostfacts


def held(control_group: str) -> Dict[str, Any]:
    """Host memory that would be free again if the service stopped: {"bytes", "basis", "anon",
    "shmem"}: the last two are its parts.

    Page cache does not count: it is available already. The kernel's own count of the group where
    there is one, else the processes' resident memory without what is backed by files.
    """
    if not control_group.startswith("/"):
        return _told(0, 0, "not running")
    stat = hostfacts.read(f"/sys/fs/cgroup{control_group}/memory.stat")
    count = dict(line.split(None, 1) for line in stat.splitlines() if " " in line)
    if "anon" in count:
        return _told(int(count["anon"]), int(count.get("shmem", 0)), "cgroup")
    parts = {"RssAnon:": 0, "RssShmem:": 0}
    for pid in hostfacts.cgroup_pids(control_group):
        text = hostfacts.read(f"/proc/{pid}/status")
        for line in text.splitlines():
            name = line.partition("\t")[0]
            if name in parts:
                parts[name] += int(line.split()[1]) * hostfacts.KiB
    return _told(parts["RssAnon:"], parts["RssShmem:"], "processes")


def _told(anon: int, shmem: int, basis: str) -> Dict[str, Any]:
    return {"bytes": anon + shmem, "basis": basis, "anon": anon, "shmem": shmem}
