"""Memory by NUMA node, and huge pages, from sysfs. Bytes."""

from __future__ import annotations

import os
import re
from typing import Dict, List

from opsctl.onhost.hostfacts import KiB, read

# Of a node's memory, what the kernel gives away without swapping: free, page cache that is not
# shared memory, and what of its own it can drop.
RECLAIMABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


def nodes(sys: str = "/sys") -> List[Dict[str, int]]:
    """[{"node", "total", "free", "available"}] by node; empty where there are none."""
    folder = f"{sys}/devices/system/node"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = []
    for number in sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)):
        figures = parse(read(f"{folder}/node{number}/meminfo"))
        if figures.get("MemTotal"):  # a node may have processors only
            found.append(
                {
                    "node": number,
                    "total": figures["MemTotal"],
                    "free": figures.get("MemFree", 0),
                    "available": sum(figures.get(name, 0) for name in RECLAIMABLE),
                }
            )
    return found


def parse(text: str) -> Dict[str, int]:
    """/sys/devices/system/node/nodeN/meminfo: "Node 0 MemFree:  1 kB"."""
    found = re.findall(r"^Node \d+ ([\w()]+):\s+(\d+) kB", text, re.MULTILINE)
    return {name: int(value) * KiB for name, value in found}


def hugepages(sys: str = "/sys") -> List[Dict[str, int]]:
    """[{"size", "total", "free"}]: bytes of a page, and how many are reserved and unused."""
    folder = f"{sys}/kernel/mm/hugepages"
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        if match:
            total, free = (
                int(read(f"{folder}/{name}/{which}").strip() or 0)
                for which in ("nr_hugepages", "free_hugepages")
            )
            found.append({"size": int(match[1]) * KiB, "total": total, "free": free})
    return found
