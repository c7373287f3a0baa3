"""Which pool a line of one rank tells of: the target's, its window's, its state's or the draft's.

The lines themselves do not always say. Up to 0.5.16 a model with a sliding window prints two equal
lines, the window's first, and then one with both sizes; 0.5.17 labels them and turns their order.
Host pools are named from 0.5.17 on; before, window and draft use the words of the main pool.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .model import RankFacts

Data = Dict[str, Any]
WINDOW, STATE = "swa", "mamba"


def find(rank: RankFacts, name: str) -> Optional[Data]:
    """The device pool of that name beside the main one."""
    return next((pool for pool in rank.other_pools if pool.get("name") == name), None)


def is_draft(rank: Optional[RankFacts], data: Data, has_draft: bool) -> bool:
    """Whether a line about a KV cache is the draft's: the target's comes first in all versions."""
    if data["draft"] or rank is None:
        return bool(data["draft"])
    known = find(rank, WINDOW) if data["label"] == "SWA" else rank.kv_tokens
    return has_draft and known is not None


def add_kv(rank: RankFacts, kind: str, data: Data) -> None:
    label = data["label"]
    first = kind != "kv" or rank.kv_tokens is None
    if first and label in ("", "Full"):
        rank.kv_tokens, rank.kv_bytes = data["tokens"], data["bytes"]
        rank.kv_dtype = data["dtype"] or rank.kv_dtype
        return
    name = WINDOW if label == "SWA" else label.lower()
    rank.other_pools.append({"name": name, "tokens": data["tokens"], "bytes": data["bytes"]})


def add_window(rank: RankFacts, data: Data, lines: List[Data]) -> None:
    """The line with both sizes puts the two before it right. `lines`: this rank's lines about KV
    caches so far."""
    if find(rank, WINDOW) is not None or len(lines) < 2:
        return  # labelled already, or the draft's
    one, other = lines[-2:]
    window, full = (other, one) if one["tokens"] != data["swa"] else (one, other)
    rank.kv_tokens, rank.kv_bytes = full["tokens"], full["bytes"]
    named = {"name": WINDOW, "tokens": window["tokens"], "bytes": window["bytes"]}
    rank.other_pools = [pool for pool in rank.other_pools if pool["name"]] + [named]
    if other["draft"]:  # taken for the draft's, which comes later
        rank.draft.pop("kv_tokens", None)
        rank.draft.pop("kv_bytes", None)


def add_state(rank: RankFacts, data: Data) -> None:
    if find(rank, STATE) is None:
        size = data["temporal"] + data["conv"]
        rank.other_pools.append({"name": STATE, "tokens": data["tokens"], "bytes": size})


def add_limits(rank: RankFacts, tokens: int) -> None:
    """The number that the scheduler works with is the main pool's: where two lines without names
    were told apart by nothing else (0.5.2 to 0.5.4), it tells."""
    rank.max_total_tokens = tokens
    for pool in rank.other_pools:
        if not pool["name"] and pool["tokens"] == tokens != rank.kv_tokens:
            pool["name"] = WINDOW
            rank.kv_tokens, pool["tokens"] = pool["tokens"], rank.kv_tokens
            rank.kv_bytes, pool["bytes"] = pool["bytes"], rank.kv_bytes


def add_host_pool(rank: RankFacts, data: Data) -> None:
    taken = {pool["name"] for pool in rank.host_pools}
    name = data["name"]
    if name == "kv" and name in taken:
        name = WINDOW if find(rank, WINDOW) is not None and WINDOW not in taken else "draft"
    elif name == "indexer" and name in taken:
        name = "draft-indexer"
    rank.host_pools.append({"name": name, "bytes": data["bytes"], "tokens": data["tokens"]})
