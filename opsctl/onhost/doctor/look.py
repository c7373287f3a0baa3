"""All that `doctor` reads of a host, in one look: texts of files and commands, nothing judged.

Changes nothing. What it answers is JSON, so that a test can plant a fault by changing a text.
"""

from __future__ import annotations

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from opsctl.onhost import gpubus, gpufacts, hostfacts, numa, unitfacts
from opsctl.onhost.asking import ask
from opsctl.onhost.doctor import keeping, servicelook
from opsctl.onhost.doctor.servicelook import strays
from opsctl.onhost.store import Places
from opsctl.onhost.systemd import CallFailed, Systemd

GPU_LIMIT = 20.0  # seconds; eight healthy cards answer the longest question in some two
LIMIT = 15.0
FABRIC = "nvidia-fabricmanager.service"
PERSISTENCE = "nvidia-persistenced.service"
CLOCKS = ("systemd-timesyncd.service", "chrony.service", "chronyd.service", "ntpd.service",
          "ntp.service", "ntpsec.service")  # fmt: skip
RECOVER = "opsctl-recover.service"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
KERNEL_WORDS = (
    r"NVRM|Xid|nouveau|out of memory|oom-kill|I/O error|medium error|EXT4-fs error|XFS.*[Cc]orrupt"
    r"|unsigned module|module verification|Key was rejected|Machine [Cc]heck|Hardware Error"
    r"|soft lockup|RmInitAdapter"
)
COMMANDS: Dict[str, Sequence[str]] = {
    "smi": ["nvidia-smi"],
    "smi-cards": gpufacts.query(),
    "smi-short": hostfacts.GPU_QUERY,
    "smi-processes": hostfacts.PROCESS_QUERY,
    "smi-details": ["nvidia-smi", "-q", "-x"],
    "smi-topology": ["nvidia-smi", "topo", "-m"],
    "smi-p2p": ["nvidia-smi", "topo", "-p2p", "r"],
    "rocm": ["rocm-smi"],
    "fabric-version": ["nv-fabricmanager", "--version"],
    "module-version": list(unitfacts.MODULE),
    "nvcc": ["nvcc", "--version"],
    "kernel": ["journalctl", "-k", "-b", "--no-pager", "-o", "short-iso", "-n", "2000",
               f"--grep={KERNEL_WORDS}", "--case-sensitive=no"],
    "systemd": ["systemctl", "--version"],
}  # fmt: skip
BEFORE = ("smi-cards", "smi-short", "smi-details", "module-version", "fabric-version", "systemd")
FILES = (
    "/etc/os-release", "/proc/meminfo", "/proc/modules", "/proc/driver/nvidia/version",
    "/proc/sys/kernel/tainted", "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/fs/nr_open", "/proc/self/mountinfo",
    "/sys/fs/cgroup/cgroup.controllers", "/run/reboot-required.pkgs", "/proc/1/limits",
    "/proc/1/status", "/run/systemd/container",
)  # fmt: skip
DISKS = ("/var/lib/opsctl", "/etc/opsctl", "/etc/systemd/system", "/var/log", "/var/cache/opsctl",
         "/tmp", "/dev/shm")  # fmt: skip


def look(
    places: Places, systemd: Systemd, manifests: Sequence[Mapping[str, Any]]
) -> Dict[str, Any]:
    """`manifests`: of the services that are described for this host (release.json's contract)."""
    with ThreadPoolExecutor(8) as pool:
        asked = {name: pool.submit(_ask, name, argv) for name, argv in COMMANDS.items()}
        services = pool.submit(servicelook.services, places, systemd, manifests)
        units = pool.submit(_units, systemd)
        seen: Dict[str, Any] = {
            "time": time.time(),
            "python": platform.python_version(),
            "files": texts(FILES),
            "secure_boot": _secure_boot(places.root),
            "reboot": os.path.exists("/run/reboot-required"),
            "journal": keeping.journal(places.root),
            "synchronised": keeping.synchronised(),
            "pci": gpubus.pci(),
            "amd": gpufacts.amd(),
            "nodes": numa.nodes(),
            "hugepages": numa.hugepages(),
        }
        try:
            seen["services"], seen["systemd_error"] = services.result(), ""
        except CallFailed as error:
            seen["services"], seen["systemd_error"] = [], str(error)
        seen["disks"] = {path: disk(path) for path in _disk_paths(seen["services"])}
        # Without systemd nobody knows whose a process is.
        seen["strays"] = [] if seen["systemd_error"] else strays(seen["services"])
        seen["units"] = units.result()
        seen["commands"] = {name: future.result() for name, future in asked.items()}
    return seen


def look_before(systemd: Systemd) -> Dict[str, Any]:
    """The part that tells whether this host would keep a release from starting."""
    names = BEFORE
    with ThreadPoolExecutor(len(names)) as pool:
        asked = {name: pool.submit(_ask, name, COMMANDS[name]) for name in names}
        return {
            "python": platform.python_version(),
            "systemd_error": "",
            "files": texts(FILES),
            "pci": gpubus.pci(),
            "amd": gpufacts.amd(),
            "units": _units(systemd),
            "commands": {name: future.result() for name, future in asked.items()},
        }


def _ask(name: str, argv: Sequence[str]) -> Dict[str, Any]:
    if name == "nvcc":
        argv = [_nvcc(), *argv[1:]]
    answer = ask(argv, GPU_LIMIT if name.startswith("smi") else LIMIT, errors=name == "kernel")
    if name == "kernel" and "pattern matching support" in answer["out"]:
        return ask([word for word in argv if not word.startswith(("--grep", "--case"))], LIMIT)
    return answer


def _nvcc() -> str:
    """As a unit finds it: PATH is short there, and the toolkit's own place is in none."""
    place = "/usr/local/cuda/bin/nvcc"
    return place if os.path.exists(place) else "nvcc"


def texts(paths: Sequence[str]) -> Dict[str, str]:
    """Of the files that are there."""
    return {path: hostfacts.read(path) for path in paths if os.path.exists(path)}


def disk(path: str) -> Dict[str, Any]:
    """Of the file system where `path` is, or will be: bytes and inodes, and how it is mounted."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        stat = os.statvfs(str(place))
    except OSError as error:
        return {"at": str(place), "error": str(error)}
    return {
        "at": str(place),
        "total": stat.f_blocks * stat.f_frsize,
        "free": stat.f_bavail * stat.f_frsize,
        "inodes": stat.f_files,
        "inodes_free": stat.f_favail,
        "readonly": bool(stat.f_flag & os.ST_RDONLY),
        "noexec": bool(stat.f_flag & os.ST_NOEXEC),
        "filesystem": os.path.ismount(path),
        "mode": place.stat().st_mode & 0o7777 if place == Path(path) else None,
    }


def _disk_paths(services: Sequence[Mapping[str, Any]]) -> List[str]:
    wanted = list(DISKS)
    for service in services:
        found = servicelook.paths(service["manifest"])
        wanted += [path for path in found if path not in service["silent"]]
    return list(dict.fromkeys(wanted))


def _secure_boot(root: Path) -> Any:
    """True, False, or None where the firmware tells nothing. The last byte is the value."""
    try:
        content = (root / SECURE_BOOT).read_bytes()
    except OSError:
        return None
    return content[-1:] == b"\x01"


def _units(systemd: Systemd) -> Dict[str, Dict[str, str]]:
    """The properties that judges ask, by unit; {} if systemd does not answer."""
    names = [FABRIC, PERSISTENCE, RECOVER, *CLOCKS, "opsctl-deadman-*", "opsctl-guard-*"]
    try:
        states = systemd.show_all(names)
    except CallFailed:
        return {}
    return {
        state.name: {
            "load": state.load,
            "active": state.active,
            "sub": state.sub,
            "enabled": str(state.properties.get("UnitFileState", "")),
        }
        for state in states
    }
