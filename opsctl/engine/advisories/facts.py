"""What a condition may ask about. Every fact but the version may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# group → fact → what it is. A condition that names any other is refused when the data is read.
KNOWN: dict[str, dict[str, str]] = {
    "model": {
        "architecture": "the first of `architectures` in config.json",
        "family": "short name of the family, such as kimi-k2.5",
        "folder": "path of the model, as it is described",
        "kind": "list: mla, dsa, mha, swa, linear, moe, vision",
        "quant": "weights: fp8, int4, nvfp4, mxfp4, awq, gptq, … or none",
        "nextn": "MTP layers that the checkpoint carries",
        "context": "longest context of the model, tokens",
        "kv_scales": "whether the checkpoint carries scales for an FP8 KV cache",
    },
    "hardware": {
        "vendor": "nvidia, amd or cpu",
        "card": "list of the names of the cards",
        "count": "cards of this service",
        "capability": "CUDA compute capability as a number: 9.0, 10.3, 12.0",
        "memory": "GiB of the smallest card",
        "mixed": "whether the cards differ",
        "taken": "GiB of GPU memory, at most on one card, that others hold while we do not run",
    },
    "ranks": {
        "host": "ranks on this host",
        "tp": "tensor parallel size",
        "pp": "pipeline stages",
        "dp": "data parallel size",
        "nodes": "hosts of one replica",
    },
    "host": {
        "ram": "GiB of RAM",
        "available": "GiB available with this service stopped",
        "swap_total": "GiB of swap",
        "swap_used": "GiB of swap in use",
        "hugepages": "GiB reserved as huge pages",
        "cgroup_limit": "GiB that a cgroup above the service allows; 0: no limit",
        "container": "whether the engine runs in a container",
        "shm": "GiB of /dev/shm",
        "numa": "NUMA nodes",
        "driver": "version of the GPU driver as a number: 570.17",
        "services": "engine services on this host",
        "kill_mode": "KillMode of the unit",
        "memlock": "LimitMEMLOCK of the unit, bytes; -1: infinity",
        "nofile": "LimitNOFILE of the unit",
        "swappable": "whether the service's rules allow swap to be in use",
    },
    "forecast": {
        "images_share": "what the fraction that the engine chooses is multiplied with for a vision "
        "tower; 1: for none, or where the engine turns images off by itself",
        "aiter_share": "what the fraction is multiplied with for the attention backend aiter",
        "row_share": "bytes that a row of sparse attention takes over those it is charged with",
        "table": "GiB of the table of requests, in no budget",
        "rest": "GiB that are left for the KV cache of a rank; below 0: it cannot start",
        "tokens": "tokens of the KV cache of a rank",
        "context": "context length that the engine will serve, tokens",
        "contexts": "how many requests of full context length the KV cache of a rank holds",
        "device_pool": "GiB of the KV cache of a rank",
        "host_pool": "GB of all host pools of a rank",
        "host_share": "host pools of all ranks as a share of the RAM that is available",
        "host_ratio": "tokens of the host pool over tokens of the device pool",
        "gpu_left": "GiB of a GPU outside of weights and pools",
        "verdict": "fits, tight, does not fit or unknown",
    },
}
GROUPS = ("flags", "env", *KNOWN)


@dataclass(frozen=True)
class Facts:
    """One service on one host. `flags`: typed values by canonical long name, as written."""

    version: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    ranks: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    forecast: Mapping[str, Any] = field(default_factory=dict)
