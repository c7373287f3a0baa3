"""What a host tells of its driver beside its packages: modules, switches, users, Secure Boot."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

# These keep the driver open by their nature and come back with it.
_OWN = ("nvidia-persiste", "nv-fabricmanage", "nvidia-powerd", "nv-hostengine", "nvlsm")
_NVIDIA, _BRIDGE_OTHER = "0x10de", "0x0680"  # PCI vendor; class of NVSwitches up to Hopper
# NVSwitches of NVLink 5 are reached through ConnectX-7 bridges, which look like network cards but
# for a word in their Vital Product Data (as NVIDIA's own start script of fabric manager asks).
_MELLANOX, _INFINIBAND, _BRIDGE_WORD = "0x15b3", "0x0207", b"SW_MNG"
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def facts(root: str = "/") -> Dict[str, Any]:
    """`root`: where the host's files start, for tests."""
    top = Path(root)
    kernel = platform.release()
    return {
        "kernel": kernel,
        "loaded": loaded(top),
        "nouveau": (top / "sys/module/nouveau").is_dir(),
        "nvswitch": nvswitches(top) > 0,
        "nvlink5": nvlink5(top),
        "headers": (top / f"lib/modules/{kernel}/build").exists(),
        "secure_boot": secure_boot(top),
        "reboot_required": reboot_required(top),
        "users": users(top),
    }


def loaded(top: Path) -> Optional[str]:
    """Version of the module that the kernel runs."""
    return _text(top / "sys/module/nvidia/version") or None


def nvswitches(top: Path) -> int:
    """Switches that show as PCI devices (up to Hopper). Those of NVLink 5 (Blackwell) do not."""
    return len(_devices(top, _NVIDIA, _BRIDGE_OTHER))


def nvlink5(top: Path) -> bool:
    """Whether a bridge to switches of NVLink 5 is here (HGX B200 and later)."""
    for device in _devices(top, _MELLANOX, _INFINIBAND):
        with contextlib.suppress(OSError):
            if _BRIDGE_WORD in (device / "vpd").read_bytes():
                return True
    return False


def _devices(top: Path, vendor: str, kind: str) -> List[Path]:
    devices = (top / "sys/bus/pci/devices").glob("*")
    return [
        d for d in devices if _text(d / "vendor") == vendor and _text(d / "class").startswith(kind)
    ]


def secure_boot(top: Path) -> Optional[bool]:
    """None where the firmware does not say: no EFI. Four bytes of attributes come first."""
    with contextlib.suppress(OSError):
        return (top / _SECURE_BOOT).read_bytes()[4:5] == b"\x01"
    return None


def reboot_required(top: Path) -> List[str]:
    """Packages that asked for a reboot; ["?"] if one is asked for without a name."""
    if not (top / "run/reboot-required").exists():
        return []
    return sorted(set(_text(top / "run/reboot-required.pkgs").split())) or ["?"]


def users(top: Path) -> List[Dict[str, Any]]:
    """Processes that hold a GPU open, but for the driver's own daemons."""
    found = []
    for folder in (top / "proc").glob("[0-9]*"):
        name = _text(folder / "comm")
        if not name.startswith(_OWN) and _holds(folder / "fd"):
            unit = re.search(r"/((?!user@)[^/]+\.service)", _text(folder / "cgroup"))
            unit_name = unit.group(1) if unit else ""
            found.append({"pid": int(folder.name), "name": name, "unit": unit_name})
    return sorted(found, key=lambda user: int(user["pid"]))


def engaged(text: str) -> List[Dict[str, Any]]:
    """Units that run, start (or wait for their next start) or stop, of `systemctl list-units`."""
    rows = [line.split() for line in text.splitlines()]
    return [
        {"unit": row[0], "state": row[2]}
        for row in rows
        if len(row) > 3 and row[2] not in ("inactive", "failed")
    ]


def parked(root: str = "/") -> List[str]:
    """Units that somebody has stopped, and that are to run again."""
    marks = Path(root).glob("var/lib/opsctl/*/parked.json")
    return sorted(f"sglang-{mark.parent.name}.service" for mark in marks)


def _holds(descriptors: Path) -> bool:
    with contextlib.suppress(OSError):
        for entry in os.scandir(str(descriptors)):
            with contextlib.suppress(OSError):
                if re.fullmatch(r"/dev/nvidia(\d+|ctl|-uvm)", os.readlink(entry.path)):
                    return True
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
