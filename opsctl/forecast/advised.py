"""A Case and its Result → what conditions of advisories may ask about. Missing facts stay out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.engine.advisories import Facts
from opsctl.forecast.evaluate import Result
from opsctl.forecast.slack import slack
from opsctl.forecast.values import Case, Geometry, Latent
from opsctl.onhost.expect import GB, GiB


def facts(manifest: Mapping[str, Any], case: Case, result: Result) -> Facts:
    path = str(manifest["model"]["path"])
    return Facts(
        case.version,
        case.flags,
        case.env,
        _known(_model(path, case)),
        _known(_hardware(case)),
        _ranks(case),
        _known(_host(manifest, case)),
        _known(_forecast(case, result)),
    )


def kinds(shape: Geometry) -> tuple[str, ...]:
    """mla or mha first, then what stands on top of it."""
    found = ["mla" if isinstance(shape.attention, Latent) else "mha"]
    found += ["dsa"] if shape.indexer is not None else []
    found += ["swa"] if shape.window else []
    found += ["linear"] if shape.linear else []
    found += ["vision"] if shape.multimodal else []
    return tuple(found)


def _known(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if value is not None}


def _model(path: str, case: Case) -> dict[str, Any]:
    shape = case.shape
    return {
        "architecture": shape.architecture,
        "family": path.rstrip("/").rpartition("/")[2].lower() or None,
        "kind": list(kinds(shape)),
        "nextn": shape.nextn,
        "context": shape.context,
        "draft": bool(case.flags.get("speculative-draft-model-path")),
    }


def _hardware(case: Case) -> dict[str, Any]:
    seen = case.hardware
    capability = seen.capability
    return {
        "vendor": seen.vendor,
        "card": list(seen.cards) or None,
        "count": seen.count or None,
        "capability": None if capability is None else float(f"{capability[0]}.{capability[1]}"),
        "memory": None if seen.total is None else seen.total / GiB,
        "mixed": len(set(seen.cards)) > 1 if seen.cards else None,
    }


def _ranks(case: Case) -> dict[str, Any]:
    flags = case.flags
    return {
        "host": len(case.ranks),
        "tp": int(flags.get("tp-size") or 1),
        "pp": int(flags.get("pp-size") or 1),
        "dp": int(flags.get("dp-size") or 1),
        "nodes": int(flags.get("nnodes") or 1),
    }


def _host(manifest: Mapping[str, Any], case: Case) -> dict[str, Any]:
    memory, swap = case.memory, manifest["memory"]["swap"]
    if memory is None:
        return {"swappable": swap == "allow"}
    return {
        "ram": memory.total / GiB,
        "available": memory.available / GiB,
        "swap_total": memory.swap_total / GiB,
        "swap_used": memory.swap_used / GiB,
        "hugepages": memory.hugepages / GiB,
        "numa": len(memory.nodes) or None,
        "services": 1 + len(memory.others),
        "swappable": swap == "allow",
    }


def _forecast(case: Case, result: Result) -> dict[str, Any]:
    device, pool = result.device, result.per_rank
    tokens = device.tokens.value if device.tokens else None
    left = slack(case, device)
    total, memory = result.host_total, case.memory
    host_tokens = result.host_tokens
    context = case.flags.get("context-length") or case.shape.context
    return {
        "rest": device.rest.value / GiB if device.rest else None,
        "tokens": tokens,
        "context": int(context) if context else None,
        "device_pool": tokens * device.cell / GiB if tokens is not None else None,
        "host_pool": pool / GB if pool is not None else None,
        "host_share": total / memory.available if total is not None and memory else None,
        "host_ratio": host_tokens / tokens if host_tokens and tokens else None,
        "gpu_left": left.left.value / GiB if left else None,
        "verdict": result.fit.verdict,
    }
