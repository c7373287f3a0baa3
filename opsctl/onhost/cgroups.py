"""Memory limits of a unit's control groups, and what is used of them without page cache. Bytes."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from opsctl.onhost.hostfacts import read

UNIFIED = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
FIRST = "/sys/fs/cgroup/memory"  # the controller of version 1
UNLIMITED = 1 << 60  # version 1 says so with a huge number


def of(properties: Mapping[str, str], name: str) -> List[Dict[str, Any]]:
    """The chain of a unit that runs, or of the place where it would.

    `properties`: ControlGroup, Slice, MemoryMax, MemoryHigh as `systemctl show` tells them.
    """
    group = properties.get("ControlGroup") or ""
    if group.startswith("/") and ".." not in group:
        return chain(group)
    place = slice_path(properties.get("Slice") or "system.slice")
    found = chain(place)
    limits = [_limit(properties.get(key, "")) for key in ("MemoryMax", "MemoryHigh")]
    known = [limit for limit in limits if limit is not None]
    if known:
        found.append({"path": f"{place}/{name}", "limit": min(known), "used": 0})
    return found


def slice_path(name: str) -> str:
    """ "a-b.slice" lies in "a.slice"."""
    if not name.endswith(".slice") or name == "-.slice":
        return "/"
    parts = name[: -len(".slice")].split("-")
    return "/" + "/".join("-".join(parts[: n + 1]) + ".slice" for n in range(len(parts)))


def chain(group: str, unified: Optional[str] = None, first: str = FIRST) -> List[Dict[str, Any]]:
    """[{"path", "limit", "used"}] from the root down, of the groups that have a limit."""
    root = unified or next((r for r in UNIFIED if os.path.exists(f"{r}/cgroup.controllers")), "")
    found = []
    parts = [part for part in group.split("/") if part]
    for depth in range(len(parts) + 1):
        path = "/" + "/".join(parts[:depth])
        entry = _second(f"{root}{path}") if root else None
        entry = entry or _first(f"{first}{path}")
        if entry is not None:
            found.append({"path": path, **entry})
    return found


def _second(folder: str) -> Optional[Dict[str, int]]:
    limits = [_limit(read(f"{folder}/{name}")) for name in ("memory.max", "memory.high")]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return None
    used = _number(read(f"{folder}/memory.current"))
    stat = _stat(read(f"{folder}/memory.stat"))
    cache = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    return {"limit": min(known), "used": max(0, used - cache)}


def _first(folder: str) -> Optional[Dict[str, int]]:
    limit = _limit(read(f"{folder}/memory.limit_in_bytes"))
    if limit is None:
        return None
    used = _number(read(f"{folder}/memory.usage_in_bytes"))
    stat = _stat(read(f"{folder}/memory.stat"))
    cache = stat.get("total_active_file", 0) + stat.get("total_inactive_file", 0)
    return {"limit": limit, "used": max(0, used - cache)}


def _limit(text: str) -> Optional[int]:
    """None where there is no limit: "max", "infinity", or a number beyond all memory."""
    number = _number(text)
    return number if 0 < number < UNLIMITED else None


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdigit() else 0


def _stat(text: str) -> Dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
