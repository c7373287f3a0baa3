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


def whole_pages(tokens: int, page: int, key: Tuple[int, ...]) -> int:
    """Cut down to whole pages up to 0.5.5.post2; since, a page beyond the whole ones."""
    if key < (0, 5, 5, 3):
        return tokens - tokens % page
    return (tokens // page + 1) * page


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
    return whole_pages(tokens, page, version_key(version))


def sidecar_tokens(host: int, device: int, page: int, key: Tuple[int, ...]) -> int:
    """Tokens of a draft's host pool beside a target's of `host` tokens; `device`: tokens of the
    draft's device pool, the same as the target's.

    Up to 0.5.22 it is sized by the ratio of the two, in floating point, and padded again: a page
    more than the target, or none where the ratio came out a trifle too small.
    """
    if key >= (0, 5, 23):
        return host
    return whole_pages(int(device * (host / device)), page, key)


def of_stage(expect: Mapping[str, Any], rank: str) -> Mapping[str, Any]:
    """What is expected of this rank: its pipeline stage's figures, where they differ."""
    stages = expect.get("stages") or {}
    for part in rank.split():
        if part in stages:
            return {**expect, **stages[part]}
    return expect


def pool_tokens(
    pool: Mapping[str, Any],
    device: Mapping[str, Optional[int]],
    host: Mapping[str, Optional[int]],
    version: str,
) -> Optional[int]:
    """Tokens of a host pool of the manifest, None if they cannot be told.

    `device`: rows of each device pool by name; `host`: tokens of the host pools before it.
    """
    page = pool.get("page") or 1
    if pool.get("like"):
        tokens = host.get(pool["like"])
        rows = device.get("kv")
        if tokens is None or pool["name"] != "draft":
            return tokens
        return sidecar_tokens(tokens, rows, page, version_key(version)) if rows else None
    if pool.get("auto"):
        return None
    rows = device.get(pool.get("of") or "kv")
    if rows is None and not pool.get("size"):
        return None
    if pool.get("size") and pool.get("tokens") is not None:
        return int(pool["tokens"])  # of all pipeline stages the fewest, which one cannot tell
    return host_pool_tokens(
        rows or 0,
        bytes_per_token=pool["bytes_per_token"],
        ratio=pool.get("ratio"),
        size=pool.get("size"),
        page=page,
        version=version,
    )


def gib(value: float) -> str:
    """Bytes as GiB with two decimals: "10.42 GiB"."""
    return f"{value / GiB:.2f} GiB"


def left(value: float, of: str = "") -> str:
    """What is left of something, or how much too little there is: "5.10 GiB of RAM left", "3.20 GiB
    of RAM too little". `of`: " of RAM"."""
    return f"{gib(value)}{of} left" if value >= 0 else f"{gib(-value)}{of} too little"


def gb(value: float) -> str:
    """Bytes as decimal GB with two decimals, as the engine prints host pools: "44.77 GB"."""
    return f"{value / GB:.2f} GB"


def count(value: float) -> str:
    """ "159277" → "159,277"."""
    return f"{value:,.0f}"


def span(seconds: float) -> str:
    """A duration in the two units that matter: "4 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    whole = max(0, round(seconds))
    for unit, size, smaller, step in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // step
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
