"""What the unit and the machine around it allow the engine, as far as it has ended starts."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Mapping, Optional

from opsctl.onhost.asking import ask
from opsctl.onhost.hostfacts import read

MODULE = ("modinfo", "-F", "version", "nvidia")
LIMIT = 10.0  # s
VERSION = "/proc/driver/nvidia/version"
CONTAINER = "/run/systemd/container"  # systemd's own note of what it runs in; absent on metal


def of(properties: Mapping[str, str]) -> Dict[str, Any]:
    """From `systemctl show`; limits as numbers, -1 for infinity, None where nothing was told."""
    return {
        "kill_mode": properties.get("KillMode") or None,
        "nofile": _limit(properties.get("LimitNOFILE", "")),
        "memlock": _limit(properties.get("LimitMEMLOCK", "")),
    }


def _limit(text: str) -> Optional[int]:
    if text == "infinity":
        return -1
    return int(text) if text.isdigit() else None


def driver(text: Optional[str] = None) -> str:
    """Version of the NVIDIA kernel module that is loaded; "" without one."""
    told = read(VERSION) if text is None else text
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", told)
    return found[1] if found else ""


def waiting() -> str:
    """Of a driver that waits for the next boot; "" where none does, or there is no driver."""
    loaded = driver()
    return told_waiting(loaded, ask(MODULE, LIMIT)["out"]) if loaded else ""


def told_waiting(loaded: str, modinfo: str) -> str:
    """Both versions, where the module on disk is of another one than the kernel has (pure)."""
    on_disk = modinfo.strip().splitlines()[-1:]
    if not (loaded and on_disk and on_disk[0][:1].isdigit()) or on_disk[0] == loaded:
        return ""
    return f"the kernel has {loaded}, on disk is {on_disk[0]}"


def shm(path: str = "/dev/shm") -> Optional[int]:
    """Bytes that /dev/shm can hold; None if it cannot be told."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_frsize * disk.f_blocks


def container() -> bool:
    return os.path.exists(CONTAINER)
