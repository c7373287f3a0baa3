"""Driver ↔ CUDA ↔ torch ↔ SGLang ↔ GPU architecture. Pure; figures and their sources stand in
compatibility.json, which roles, `plan` and `doctor` read through here.

Of a release that is not listed nothing is claimed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def data() -> dict[str, Any]:
    """{"cuda", "torch", "engine", "kernel", "least"}, each figure with its sources."""
    path = Path(__file__).with_name("compatibility.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def needs(version: str) -> dict[str, Any]:
    """What a release of SGLang asks of a host with NVIDIA GPUs; {} if it is not listed.

    {"driver": least version, "cuda": as torch is built, "torch", "kernel": "NAME==VERSION",
    "python": least version of the environment, "capability": least of a GPU, "architectures":
    those that torch holds code for, "ptx": whether newer ones may compile it, "drivers": least
    driver by CUDA's major}. It travels in the release's manifest, so that a host judges by the same
    figures as its controller.
    """
    row = data()["engine"].get(version)
    if row is None:
        return {}
    torch = data()["torch"][row["torch"]]
    major = torch["cuda"].partition(".")[0]
    least = [data()["cuda"][major]["driver"]]
    if data()["kernel"]["cuda"] == major:
        least.append(data()["kernel"]["driver"])
    return {
        "driver": max(least, key=numbers),
        "cuda": torch["cuda"],
        "torch": row["torch"],
        "kernel": row["kernel"],
        "python": row["python"],
        "capability": data()["least"]["capability"],
        "architectures": torch["architectures"],
        "ptx": torch["ptx"],
        "drivers": {major: row["driver"] for major, row in data()["cuda"].items()},
    }


def driver_problem(version: str, driver: str) -> str:
    """Why a driver cannot run a release, "" if nothing is known against it."""
    least = needs(version).get("driver")
    if not least or numbers(driver) >= numbers(least):
        return ""
    return f"SGLang {version} needs NVIDIA driver {least} or newer, this host has {driver}"


def numbers(version: str) -> tuple[int, ...]:
    """ "580.65.06" → (580, 65, 6); what is not a number ends it."""
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
