"""The expectation that travels in a release: what the gate `ranks` holds each rank's log against.

docs/architecture.md has its form. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsctl.forecast.evaluate import Result
from opsctl.forecast.values import Device, DevicePool, Figure, HostPool

# Stored inside the rows of `kv`: the engine logs them as one pool.
_INSIDE = ("kv", "indexer")
# Allocated with the state of running requests, and logged nowhere by itself.
_SILENT = ("mamba-draft",)


def expected(result: Result, notes: Sequence[str]) -> dict[str, Any]:
    """release.json's "expect"."""
    first = _stage(result, 0)
    stages = {
        f"PP{device.stage}": figures
        for n, device in enumerate(result.devices)
        if n and (figures := _stage(result, n)) != first
    }
    fit = result.fit
    return {
        **first,
        **({"stages": stages} if stages else {}),
        "host_total": result.host_total,
        "available_after": fit.available_after,
        "available_least": fit.least,
        "notes": list(notes),
    }


def _stage(result: Result, n: int) -> dict[str, Any]:
    device, pools = result.devices[n], result.pools[n]
    others = [_pool(pool) for pool in device.pools if pool.name not in (*_INSIDE, *_SILENT)]
    return {
        "kv": _kv(device),
        **({"pools": others} if others else {}),
        "host_pools": None if pools is None else [_host_pool(pool) for pool in pools],
    }


def _kv(device: Device) -> dict[str, Any]:
    row = sum(pool.bytes_per_row for pool in device.pools if pool.name in _INSIDE) or device.cell
    tokens = device.tokens
    if tokens is None:
        known = {"tokens": None, "min": None, "max": None, "basis": "estimated", "source": ""}
    else:
        known = {**_figure(tokens), "basis": tokens.basis, "source": tokens.source}
    return {**known, "bytes_per_token": row}


def _figure(figure: Figure) -> dict[str, Any]:
    return {"tokens": figure.value, "min": figure.least, "max": figure.most}


def _pool(pool: DevicePool) -> dict[str, Any]:
    return {"name": pool.name, **_figure(pool.rows), "bytes_per_token": pool.bytes_per_row}


def _host_pool(pool: HostPool) -> dict[str, Any]:
    """Optional keys are left out where they say nothing, as the document has it."""
    told: dict[str, Any] = {
        "name": pool.name,
        "bytes_per_token": pool.bytes_per_token,
        "ratio": pool.ratio,
        "size": pool.size,
        "page": pool.page,
        "tokens": pool.tokens,
        "bytes": pool.bytes,
    }
    if pool.pinned != pool.bytes:
        told["pinned"] = pool.pinned
    if pool.of != "kv":
        told["of"] = pool.of
    if pool.like:
        told["like"] = pool.like
    if pool.auto:
        told |= {"auto": True, "least": pool.least, "most": pool.most}
    return told
