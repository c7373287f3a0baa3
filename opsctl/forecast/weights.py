"""Weights of one rank in GPU memory, from the tensors' own shapes and the engine's sharding.

Size on disk / ranks is wrong twice: what is replicated (MLA's down-projections, routers, norms,
vision towers, attention under DP attention) counts on every rank, and the loader adds to it (the
absorbed halves of kv_b_proj). The figure is what the engine logs as "mem usage" of the load: it
counts free GPU memory, so kernels and the allocator's waste are in it too. The band holds all
public figures that were found: tests/unit/forecast/test_weights.py.

Kimi-K2.5 (595 GB of tensors, TP8): 71.4 GB of experts, 1.3 of split and 1.9 of replicated
attention, … come to 71.9 GiB; 72.3 is seen on CUDA. On ROCm the INT4 experts keep the index
tensors that Marlin's loader drops (CompressedTensorsWNA16TritonMoE): + 1.27 GiB, 73.58 is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.forecast import sharding
from opsctl.forecast.sharding import Split
from opsctl.forecast.values import ESTIMATED, Figure, Geometry, Heads, NoForecast

GiB = 1 << 30
# What the load takes beside the tensors: code of kernels, the allocator's waste.
_BESIDE = (0, int(0.10 * GiB), int(1.0 * GiB))
_ROUNDING = (0.995, 1.003, 1.02)
_SCALES = re.compile(r"scale|zero|g_idx|qzeros")
# Of tensors that were read; those that are only imagined (forecast/dimensions) bring their own.
_SURE = (1.0, 1.0)
# Architectures whose layers count twice in Geometry.layers.
_TWICE = {"LongcatFlashForCausalLM"}

TARGET, DRAFT = "target", "draft"


@dataclass(slots=True)
class _Sum:
    """Bytes of one rank: least, likely, most."""

    least: float = 0.0
    likely: float = 0.0
    most: float = 0.0

    def add(self, size: float, parts: tuple[float, float, float]) -> None:
        self.least += size * parts[0]
        self.likely += size * parts[1]
        self.most += size * parts[2]


def weights(
    tensors: Mapping[str, Any],
    shape: Geometry,
    flags: Mapping[str, Any],
    version: str,
    part: str = TARGET,
    vendor: str = "nvidia",
) -> Figure:
    """Bytes per rank. `tensors`: {"count", "bytes", "by": [groups]} as the host's facts tell.

    `part` DRAFT: the MTP layers inside the target's checkpoint (`shape` is the target's then
    too); a draft in a folder of its own is a TARGET by itself. Raises NoForecast.
    """
    _refuse(flags, tensors)
    cut = sharding.split(flags)
    layers = shape.layers // (2 if shape.architecture in _TWICE else 1)
    heads = shape.attention.count if isinstance(shape.attention, Heads) else None
    total = _Sum()
    for group in tensors["by"]:
        kept = _kept(group, layers)
        kept = kept if part == TARGET else 1.0 - kept
        if kept:
            _add(total, group, kept, cut, heads, layers)
            extra = _index_tensors(group, cut) * kept
            total.most += extra
            total.likely += extra if vendor == "amd" else 0.0
    if not total.likely:
        raise NoForecast(f"the checkpoint holds no tensors of the {part}")
    if part == DRAFT:
        total.most += _vocabulary(tensors, cut)
    return _figure(total)


def _refuse(flags: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    if not tensors.get("by"):
        raise NoForecast("the model folder's tensors are not known")
    for name in ("cpu-offload-gb", "offload-group-size"):
        if flags.get(name) not in (None, 0, -1, False):
            raise NoForecast(f"{name} is set: what stays on the GPU is not forecast")
    if flags.get("torchao-config"):
        raise NoForecast("torchao-config is set: the weights are quantised while loading")
    if flags.get("quantization") and not _quantised(tensors):
        raise NoForecast("quantization is set, and the checkpoint is not quantised itself")


def _quantised(tensors: Mapping[str, Any]) -> bool:
    return any(_SCALES.search(group["name"]) for group in tensors["by"])


def _kept(group: Mapping[str, Any], layers: int) -> float:
    """The part of a group's tensors that belongs to the target: MTP layers are numbered after its
    last layer, or have a name of their own."""
    name, span = str(group["name"]), group.get("layers")
    if name.startswith("mtp.") or ".mtp." in name or ".mtp_layers." in name:
        return 0.0
    if not span or sharding.kind(name) == sharding.VISION:
        return 1.0
    first, last = int(span[0]), int(span[1])
    if first >= layers:
        return 0.0
    if last < layers:
        return 1.0
    count = int(group["count"])
    distinct = last - first + 1
    if count % distinct:  # not in every layer of the span: then one tensor a layer
        distinct = max(1, min(count, distinct))
    return 1.0 - min(last - layers + 1, distinct) / distinct


def _add(
    total: _Sum,
    group: Mapping[str, Any],
    kept: float,
    cut: Split,
    heads: int | None,
    layers: int,
) -> None:
    name = str(group["name"])
    what = sharding.kind(name)
    size = _padded(group, what) * kept * _narrowed(group, what)
    least, likely, most = sharding.share(what, cut, heads)
    if what == sharding.EXPERT:
        twice = 1 + cut.redundant / _experts(group, layers) if cut.redundant else 1.0
        likely, most = likely * twice, most * twice * _padding(group, cut)
    if cut.stages > 1:
        least, likely, most = _staged(what, layers, cut.stages, (least, likely, most))
    low, high = group.get("doubt", _SURE)
    total.add(size, (least * low, likely, most * high))
    if name.endswith("kv_b_proj.weight"):  # its two halves are kept once more, for absorption
        copies = _elements(group) * kept / cut.attention / cut.stages
        total.add(copies, (0.0, 2.0, 4.0))


def _padded(group: Mapping[str, Any], what: int) -> float:
    size = float(group["bytes"])
    if what not in (sharding.EMBED, sharding.HEAD) or not group["shape"]:
        return size
    rows = int(group["shape"][0])
    step = sharding.VOCABULARY_STEP
    return size * (-(-rows // step) * step) / rows if rows else size


def _narrowed(group: Mapping[str, Any], what: int) -> float:
    """float32 matrices are kept in half precision; scales, routers and states as they are."""
    matrix = len(group["shape"]) >= 2 and str(group["name"]).endswith(".weight")
    return 0.5 if group["dtype"] == "F32" and matrix and what != sharding.WHOLE else 1.0


def _padding(group: Mapping[str, Any], cut: Split) -> float:
    """Experts in 4-bit blocks (MXFP4) are padded to what their kernels take."""
    if "_blocks" in str(group["name"]) or "_scales" in str(group["name"]):
        return 1.15 if cut.ranks <= 2 else 1.5
    return 1.0


def _experts(group: Mapping[str, Any], layers: int) -> float:
    if ".experts.#" in str(group["name"]):
        span = group.get("layers")
        held = int(span[1]) - int(span[0]) + 1 if span else layers
        return max(1.0, int(group["count"]) / held)
    return float(group["shape"][0]) if group["shape"] else 1.0


def _staged(
    what: int, layers: int, stages: int, parts: tuple[float, float, float]
) -> tuple[float, float, float]:
    """The embedding is on the first stage, the head on the last; layers are split as evenly as
    they go. The figure is that of the fullest stage."""
    least, likely, most = parts
    if what in (sharding.EMBED, sharding.HEAD):
        return 0.0, likely / 2, most
    if what == sharding.VISION:
        return 0.0, likely, most
    return (
        least * (layers // stages) / layers,
        likely / stages,
        most * -(-layers // stages) / layers,
    )


def _elements(group: Mapping[str, Any]) -> float:
    count = float(group["count"])
    for size in group["shape"]:
        count *= int(size)
    return count


def _index_tensors(group: Mapping[str, Any], cut: Split) -> float:
    """INT4 experts of compressed-tensors: two int32 a column of every expert, for gate and up
    together and for down, where the loader does not drop them (ROCm)."""
    name, shape = str(group["name"]), group["shape"]
    if ".experts." not in name or not name.endswith("weight_packed") or group["dtype"] != "I32":
        return 0.0
    columns = int(shape[-1]) * 8 * int(group["count"])
    if ".gate_proj." in name or ".w1." in name:
        return columns * 8.0 / cut.stages
    if ".down_proj." in name or ".w2." in name:
        return columns * 8.0 / cut.ranks / cut.stages
    return 0.0


def _vocabulary(tensors: Mapping[str, Any], cut: Split) -> float:
    """A draft inside the checkpoint shares the target's embedding and head, but may hold them
    itself until it does."""
    found = 0.0
    for group in tensors["by"]:
        what = sharding.kind(str(group["name"]))
        if what in (sharding.EMBED, sharding.HEAD):
            found += float(group["bytes"]) / (cut.embed if what == sharding.EMBED else cut.head)
    return found


def _figure(total: _Sum) -> Figure:
    return Figure(
        int(total.likely * _ROUNDING[1]) + _BESIDE[1],
        int(total.least * _ROUNDING[0]) + _BESIDE[0],
        int(total.most * _ROUNDING[2]) + _BESIDE[2],
        ESTIMATED,
        "shapes of the checkpoint's tensors and the engine's sharding",
    )
