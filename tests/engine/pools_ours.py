"""Our forecast of a judge's case, in the judge's words: the two can be laid side by side."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from opsctl.forecast.device import device
from opsctl.forecast.host import host_pools
from opsctl.forecast.shape import draft_geometry, geometry
from opsctl.forecast.values import Case, Device, Hardware, HostMemory, HostPool, Measured

Answer = dict[str, Any]
GiB = 1 << 30


def case_of(version: str, asked: Answer) -> Case:
    """The judge's case as our Case: the same configs, flags and free memory, to the byte."""
    flags = {name.replace("_", "-"): value for name, value in asked["flags"].items()}
    shape = geometry(json.dumps(asked["config"]), None, version)
    draft = None
    if asked.get("draft"):
        algorithm = str(flags["speculative-algorithm"])
        own = None if asked["draft"] == "inside" else json.dumps(asked["draft"])
        draft = draft_geometry(own, None, shape, algorithm, version)
    stages, width = int(flags.get("pp-size", 1)), int(flags.get("tp-size", 1))
    count = stages * width
    return Case(
        version=version,
        flags=flags,
        env=asked.get("env") or {},
        ranks=tuple(
            f"TP{rank} PP{stage}" if stages > 1 else f"TP{rank}"
            for stage in range(stages)
            for rank in range(width)
        ),
        shape=shape,
        draft=draft,
        hardware=Hardware(
            count,
            (asked["card"],) * count,
            asked["memory_mib"] << 20,
            tuple(asked["capability"]),
        ),
        memory=HostMemory(asked["host_available"] * 2, asked["host_available"]),
        measured=Measured(
            free_before=asked["before_bytes"],
            free_after=asked["after_bytes"],
            exact=True,
            process=0,  # the judge's host memory is what is there when the pools are made
        ),
        weights=None,
        draft_weights=None,
        min_available=0,
    )


@dataclass
class Sides:
    """What differs, one line each."""

    lines: list[str] = field(default_factory=list)

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            self.lines.append(f"{what}: ours {ours}, the engine's {theirs}")


def groups(said: Answer) -> dict[str, int]:
    """Bytes of the engine's tensors by pool. Tables of addresses and free slots are no pool."""
    found: dict[str, int] = {}
    for path, (size, _) in {**said["kv"], **said.get("mamba", {})}.items():
        last = path.split(".")[-1]
        if last.endswith(("ptrs", "strides", "mapping", "slots")):
            continue
        if "mamba_" in path or "conv_window" in path:
            name = "mamba"
        elif "index" in path:
            name = "indexer"
        elif path.startswith("swa_kv_pool"):
            name = "swa"
        else:
            name = "kv"
        found[name] = found.get(name, 0) + size
    return {name: size for name, size in found.items() if size}


def compare_device(found: Device, said: Answer, sides: Sides) -> None:
    assert found.tokens is not None, "tokens are not told, though free memory is known"
    sides.same("tokens", found.tokens.value, said["tokens"])
    sides.same("page", found.page, said["page"])
    sides.same("mem-fraction-static", found.fraction, said["fraction"])
    if found.max_running is not None:
        sides.same("requests at once", found.max_running, said["requests"])
    if said["charged"] is not None and "slots" not in said and "swa" not in said:
        sides.same("charged bytes a token", found.charged, said["charged"])
    theirs = groups(said)
    ours: dict[str, int] = {}
    for pool in found.pools:
        name = "mamba" if pool.name == "mamba-draft" else pool.name
        if pool.bytes.value:
            ours[name] = ours.get(name, 0) + pool.bytes.value
    if "draft" in said:  # its recurrent state is the target's
        own = groups(said["draft"])
        theirs["draft"] = sum(size for name, size in own.items() if name != "mamba")
    sides.same("bytes by pool", dict(sorted(ours.items())), dict(sorted(theirs.items())))
    rows = {pool.name: pool.rows.value for pool in found.pools}
    if "slots" in said:
        sides.same("slots of recurrent state", rows.get("mamba"), said["slots"])
    if "swa" in said:
        sides.same("tokens of the window pool", rows.get("swa"), said["swa"])


def compare_host(found: tuple[HostPool, ...], said: Answer, sides: Sides) -> None:
    names = {"draft_indexer": "draft-indexer", "draft_swa": "draft-swa"}
    theirs = {
        names.get(pool["name"], pool["name"]): (pool["tokens"], kept(pool))
        for pool in said["host"]
        if pool.get("class") != "LogicalHostPool"
    }
    ours = {pool.name: (pool.tokens, pool.pinned) for pool in found}
    sides.same("host pools (tokens, bytes)", ours, theirs)
    sides.lines += [f"host pool {p.name} is refused: {p.refused}" for p in found if p.refused]


_HOST_BUFFERS = {"kv_buffer", "index_k_with_scale_buffer", "temporal_buffer", "conv_buffer"}
_HOST_BUFFERS |= {"index"}


def kept(pool: Answer) -> int:
    """Bytes of the buffers that hold the tier: not those of the device, nor for staging."""
    return sum(
        size
        for path, (size, _) in pool["buffers"].items()
        if path.split(".")[0] in _HOST_BUFFERS and "ptrs" not in path
    )


def ours(version: str, asked: Answer) -> tuple[Device, tuple[HostPool, ...]]:
    """Raises NoForecast."""
    case = case_of(version, asked)
    found = device(case)[asked.get("stage", 0)]
    return found, host_pools(case, found)


def exact(gib: float) -> tuple[int, float]:
    """A number of bytes, and the same in GiB without rounding."""
    size = math.floor(gib * GiB)
    return size, size / GiB
