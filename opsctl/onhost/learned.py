"""What earlier starts on this host teach about the next one. Pure.

The first start of a release on a host that nothing was known about cannot be compared with any
figure. It is recorded when it is confirmed; from then on the host itself knows what to expect, and
no manifest has to be written anew for that.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

RECORDED = "an earlier start here with the same GPU settings"
# What a driver update or a monitoring agent may take from a GPU between two starts of the same
# release. A judgement, not a measurement; a leftover process takes far more.
DRIFT = 64 << 20


def recorded_tokens(
    manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
) -> Optional[int]:
    """Tokens of the newest recorded start with the same gpu_key in which every rank agreed."""
    found = _newest(manifest, starts)
    return None if found is None else int(found[0]["kv_tokens"])


def _newest(
    manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
) -> Optional[List[Mapping[str, Any]]]:
    """The ranks of that start."""
    same = [start for start in starts if start.get("gpu_key") == manifest.get("gpu_key")]
    for start in sorted(same, key=lambda start: start.get("last_event") or 0, reverse=True):
        ranks = start.get("ranks") or {}
        found = [ranks.get(name) or {} for name in manifest["ranks"]]
        tokens = {rank.get("kv_tokens") for rank in found}
        if len(tokens) == 1 and None not in tokens:
            return found
    return None


def band(tokens: int, bytes_per_token: int) -> Tuple[int, int]:
    """Least and most tokens to expect after a start that had `tokens`."""
    drift = DRIFT // bytes_per_token
    return max(0, tokens - drift), tokens + drift


def taught(manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The manifest; an expectation that leaves tokens open is filled from recorded starts."""
    expect = manifest.get("expect") or {}
    if not (_open(expect.get("kv") or {}) or any(map(_open, expect.get("pools") or []))):
        return manifest
    ranks = _newest(manifest, starts)
    if ranks is None:
        return manifest
    filled = _filled(expect, ranks)
    stages = {
        part: _filled(stage, [r for n, r in zip(manifest["ranks"], ranks) if part in n.split()])
        for part, stage in (expect.get("stages") or {}).items()
    }
    return {**manifest, "expect": {**filled, "stages": stages} if stages else filled}


def _open(pool: Mapping[str, Any]) -> bool:
    return bool(pool.get("bytes_per_token")) and None in (pool.get("min"), pool.get("max"))


def _filled(expect: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """`expect`, or the part of it that is of one stage."""
    found = dict(expect)
    if not ranks:
        return found
    kv = expect.get("kv") or {}
    if _open(kv):
        found["kv"] = {**_known(kv, int(ranks[0]["kv_tokens"])), "source": RECORDED}
    if expect.get("pools"):
        found["pools"] = [
            _known(pool, rows) if _open(pool) and rows is not None else pool
            for pool, rows in ((pool, _rows(pool["name"], ranks[0])) for pool in expect["pools"])
        ]
    return found


def _rows(name: str, rank: Mapping[str, Any]) -> Optional[int]:
    named = {pool.get("name"): pool.get("tokens") for pool in rank.get("other_pools") or []}
    named["draft"] = (rank.get("draft") or {}).get("kv_tokens")
    rows = named.get(name)
    return None if rows is None else int(rows)


def _known(pool: Mapping[str, Any], rows: int) -> Dict[str, Any]:
    least, most = band(rows, pool["bytes_per_token"])
    return {**pool, "tokens": rows, "min": least, "max": most, "basis": "measured"}
