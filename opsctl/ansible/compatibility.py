"""Can a host's driver and GPUs run what is described? Pure; figures stand in compatibility.json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def table() -> dict[str, Any]:
    """Engine version → least driver, and where that is known from."""
    path = Path(__file__).with_name("compatibility.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["engine"]
    return found


def judge(need: dict[str, Any], driver: str | None, gpus: list[dict[str, Any]]) -> list[str]:
    """What stands in the way of one service.

    `need`: {"service", "version", "device", "gpus": indices or None, "count": GPUs that its ranks
    on this host take}. `gpus`: as `collect` tells them.
    """
    if need["device"] != "cuda":
        return []
    name = need["service"]
    if not driver or not gpus:
        return [
            f"service {name} needs NVIDIA GPUs; nvidia-smi shows none on this host (for an engine "
            "on the CPU write `device: cpu` among its flags)"
        ]
    least = table().get(need["version"], {}).get("driver")
    problems = []
    if least and numbers(driver) < numbers(least):
        problems.append(
            f"service {name}: SGLang {need['version']} needs NVIDIA driver {least} or newer, this "
            f"host has {driver}"
        )
    return problems + _gpu_problems(need, gpus)


def _gpu_problems(need: dict[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    name, there = need["service"], {gpu["index"]: gpu for gpu in gpus}
    wanted = need["gpus"] if need["gpus"] is not None else sorted(there)
    absent = [str(index) for index in wanted if index not in there]
    if absent:
        return [f"service {name}: GPU {', '.join(absent)} is not on this host (it has {len(gpus)})"]
    if need["count"] > len(wanted):
        return [f"service {name}: its ranks take {need['count']} GPUs, {len(wanted)} are there"]
    return [
        f"service {name}: GPU {index} is in state {there[index]['state']}"
        for index in wanted
        if there[index].get("state", "ok") not in ("ok", "mig")
    ]


def numbers(version: str) -> tuple[int, ...]:
    """ "580.65.06" → (580, 65, 6); what is not a number ends it."""
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)
