"""The arithmetic that the gate and the forecast share. GiB = 2^30 bytes, GB = 10^9 bytes.

The engine prints GPU figures in GiB and host pools in decimal GB, and writes "GB" for both
(0.5.2 to 0.5.23: mem_cache/memory_pool.py against memory_pool_host.py, pool_host/base.py).
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Tuple

GiB = 1 << 30
GB = 10**9

# Log lines have two decimals: half a unit of the last one.
GIB_ROUNDING = GiB // 200 + 1
GB_ROUNDING = GB // 200


def version_key(version: str) -> Tuple[int, ...]:
    """ "0.5.10.post1" → (0, 5, 10, 1): enough to order the engine's releases."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def host_pool_tokens(
    device_tokens: int,
    *,
    bytes_per_token: int,
    ratio: Optional[float] = None,
    size: Optional[float] = None,
    page: int = 1,
    version: str,
) -> int:
    """Tokens of one rank's host pool, as HostKVCache.__init__ sizes it.

    `size` is --hicache-size in decimal GB per rank and wins over `ratio` if above zero.
    Up to 0.5.5.post2 it is cut down to whole pages; since, a page is added beyond the whole ones.
    ValueError if neither is given or a figure makes no sense.
    """
    if bytes_per_token <= 0 or page <= 0 or device_tokens < 0:
        raise ValueError("bytes per token and page size are above zero, tokens not below")
    if size is not None and size > 0:
        tokens = int(size * 1e9 // bytes_per_token)
    elif ratio is not None and ratio > 0:
        tokens = int(device_tokens * ratio)
    else:
        raise ValueError("a host pool needs a ratio or a size above zero")
    if version_key(version) < (0, 5, 5, 3):
        return tokens - tokens % page
    return (tokens // page + 1) * page


def pool_bytes(pool: Mapping[str, Any], device_tokens: int, version: str) -> int:
    """Bytes of a pool of the manifest ("expect"."host_pools") over the given device tokens."""
    tokens = host_pool_tokens(
        device_tokens,
        bytes_per_token=pool["bytes_per_token"],
        ratio=pool.get("ratio"),
        size=pool.get("size"),
        page=pool.get("page") or 1,
        version=version,
    )
    return tokens * int(pool["bytes_per_token"])


def gib(value: float) -> str:
    """Bytes as GiB with two decimals: "10.42 GiB"."""
    return f"{value / GiB:.2f} GiB"


def gb(value: float) -> str:
    """Bytes as decimal GB with two decimals, as the engine prints host pools: "44.77 GB"."""
    return f"{value / GB:.2f} GB"


def count(value: float) -> str:
    """ "159277" → "159,277"."""
    return f"{value:,.0f}"
