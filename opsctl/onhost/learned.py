"""What earlier starts on this host teach about the next one. Pure.

The first start of a release on a host that nothing was known about cannot be compared with any
figure. It is recorded when it is confirmed; from then on the host itself knows what to expect, and
no manifest has to be written anew for that.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

RECORDED = "an earlier start here with the same GPU settings"
# What a driver update or a monitoring agent may take from a GPU between two starts of the same
# release. A judgement, not a measurement; a leftover process takes far more.
DRIFT = 64 << 20


def recorded_tokens(
    manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
) -> Optional[int]:
    """Tokens of the newest recorded start with the same gpu_key in which every rank agreed."""
    same = [start for start in starts if start.get("gpu_key") == manifest.get("gpu_key")]
    for start in sorted(same, key=lambda start: start.get("last_event") or 0, reverse=True):
        ranks = start.get("ranks") or {}
        found = [(ranks.get(name) or {}).get("kv_tokens") for name in manifest["ranks"]]
        if found and found[0] is not None and len(set(found)) == 1:
            return int(found[0])
    return None


def band(tokens: int, bytes_per_token: int) -> Tuple[int, int]:
    """Least and most tokens to expect after a start that had `tokens`."""
    drift = DRIFT // bytes_per_token
    return max(0, tokens - drift), tokens + drift


def taught(manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The manifest; an expectation that leaves the tokens open is filled from recorded starts."""
    expect = manifest.get("expect") or {}
    kv = expect.get("kv") or {}
    cell = kv.get("bytes_per_token")
    if not cell or (kv.get("min") is not None and kv.get("max") is not None):
        return manifest
    tokens = recorded_tokens(manifest, starts)
    if tokens is None:
        return manifest
    least, most = band(tokens, cell)
    known: Dict[str, Any] = {"tokens": tokens, "min": least, "max": most}
    known.update({"basis": "measured", "source": RECORDED})
    return {**manifest, "expect": {**expect, "kv": {**kv, **known}}}
