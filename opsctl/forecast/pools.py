"""The host pools of the hierarchical cache. GB = 10^9 bytes; all per rank.

Source: HostKVCache.__init__ of the released packages (0.5.9 mem_cache/memory_pool_host.py, 0.5.23
mem_cache/pool_host/base.py) and 0.5.23 mem_cache/hicache_auto_size.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.forecast.geometry import Geometry, NoForecast
from opsctl.forecast.kv import stage_layers
from opsctl.onhost.expect import pool_bytes, version_key

DEFAULT_RATIO = 2.0


def tiered(flags: Mapping[str, Any]) -> bool:
    return bool(flags.get("enable-hierarchical-cache"))


def pools(
    shape: Geometry,
    flags: Mapping[str, Any],
    version: str,
    *,
    bytes_per_token: int,
    page: int,
    tokens: int | None,
    element: int,
) -> list[dict[str, Any]]:
    """The manifest's "host_pools". Raises NoForecast where the engine's rule is not sure.

    MLA is not split: every rank holds a whole copy. The host pool of MHA counts K twice instead
    of K and V, so heads of two sizes are refused.
    """
    _refuse(shape, flags, version)
    cell = bytes_per_token
    if shape.kind == "mla":
        cell = shape.latent * stage_layers(shape.layers, flags) * element
    size = float(flags.get("hicache-size") or 0) or None
    ratio = None if size else float(flags.get("hicache-ratio") or DEFAULT_RATIO)
    pool: dict[str, Any] = {
        "name": "kv",
        "bytes_per_token": cell,
        "ratio": ratio,
        "size": size,
        "page": page,
        "bytes": None,
    }
    if tokens is not None or size:
        pool["bytes"] = pool_bytes(pool, tokens or 0, version)
    return [pool]


def _refuse(shape: Geometry, flags: Mapping[str, Any], version: str) -> None:
    key = version_key(version)
    algorithm = str(flags.get("speculative-algorithm") or "")
    if algorithm and algorithm != "NGRAM" and key >= (0, 5, 11):
        raise NoForecast(
            f"{version} gives the draft model a host pool too, which is not forecast yet"
        )
    given = flags.get("hicache-ratio") or flags.get("hicache-size")
    if not given and key >= (0, 5, 21):
        raise NoForecast(
            f"{version} sizes the host pools by the memory it finds: set hicache-ratio or -size"
        )
    if flags.get("hicache-host-memory-mode") == "buffer_only":
        raise NoForecast("hicache-host-memory-mode buffer_only is not forecast yet")
    if shape.kind == "mha" and shape.head_dim != shape.v_head_dim:
        raise NoForecast("K and V heads of different sizes have a host pool of their own kind")
