"""Can a host's driver and GPUs run what is described? Pure; figures: engine/compatibility.json."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from opsctl.engine.compatibility import data, driver_problem, needs, numbers


def least_drivers(wanted: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The oldest driver that each engine runs on, for the program `nvidia_driver`, which installs
    no older one. `wanted`: as of `judge`."""
    return [
        {"service": one["service"], "engine": one["version"], "driver": least}
        for one in wanted
        if one["device"] == "cuda" and (least := needs(one["version"]).get("driver"))
    ]


def torch_build(requirements: str, indices: Sequence[str] = ()) -> str | None:
    """The CUDA of the torch that requirements pin, or that its index is called by, like "13.0"; ""
    for a build without CUDA, None if nobody says."""
    built = re.search(r"^torch==\S+\+(?:cu(\d{2})(\d)|cpu|rocm)", requirements, re.MULTILINE)
    named = (re.search(r"/(?:cu(\d{2})(\d)|cpu|rocm[\d.]*)(?=/|$)", one) for one in indices)
    found = built or next(filter(None, named), None)
    if found is None:
        return None
    return f"{found[1]}.{found[2]}" if found[1] else ""


def built_for(version: str, build: str | None) -> dict[str, str]:
    """{"cuda", "driver": the least} of a release with a torch of this build (`torch_build`); ""
    where nobody knows. Torch of CUDA 13 wants its driver, whatever the release is built with."""
    need = needs(version)
    cuda = str(need.get("cuda") or "") if build is None else build
    of_torch = data()["cuda"].get(cuda.partition(".")[0], {}).get("driver")
    least = [one for one in (need.get("driver"), of_torch) if one]
    return {"cuda": cuda, "driver": max(least, key=numbers, default="")}


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
    wrong = driver_problem(need["version"], driver)
    problems = [f"service {name}: {wrong}"] if wrong else []
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
        if there[index].get("state", "ok") != "ok"  # of a card split by MIG no rank gets the whole
    ]
