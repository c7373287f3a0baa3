"""The part of the gate `ranks` that compares pools: of one rank, with what is expected of it.

Each answer is (what is wrong, what could not be judged).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .expect import GB_ROUNDING, GIB_ROUNDING, count, gb, gib, pool_tokens
from .model import RankFacts
from .rankpools import find

Answer = Tuple[List[str], List[str]]


def span(least: Optional[int], most: Optional[int]) -> str:
    if least is None or most is None:
        return f"at most {count(most or 0)}" if least is None else f"at least {count(least)}"
    return count(least) if least == most else f"{count(least)} to {count(most)}"


# -- device -------------------------------------------------------------------------------------


def device(rank: RankFacts, expect: Mapping[str, Any]) -> Answer:
    """The pools beside the main one: sliding window, recurrent state, draft."""
    wrong: List[str] = []
    unknown: List[str] = []
    for pool in expect.get("pools") or []:
        rows, size = _logged(rank, pool["name"])
        if rows is None:
            if pool["name"] != "draft":  # a draft without KV of its own logs none
                unknown.append(f"no {pool['name']} pool was logged")
            continue
        least, most = pool.get("min"), pool.get("max")
        if (least is not None and rows < least) or (most is not None and rows > most):
            wrong.append(
                f"{rank.rank} has {count(rows)} rows of {pool['name']}, "
                f"expected {span(least, most)}"
            )
        elif least is None or most is None:
            unknown.append(f"the rows of {pool['name']} could not be forecast")
        wrong += _bytes(rank, pool, rows, size, _page(expect))
    return wrong, unknown


def _page(expect: Mapping[str, Any]) -> int:
    return max([1, *(int(pool.get("page") or 1) for pool in expect.get("host_pools") or [])])


def _logged(rank: RankFacts, name: str) -> Tuple[Optional[int], Optional[int]]:
    if name == "draft":
        return rank.draft.get("kv_tokens"), rank.draft.get("kv_bytes")
    found = find(rank, name) or {}
    return found.get("tokens"), found.get("bytes")


def _bytes(
    rank: RankFacts, pool: Mapping[str, Any], rows: int, size: Optional[int], page: int
) -> List[str]:
    """The engine allocates up to a page (or a slot) more than it says, and rounds two parts."""
    row = pool.get("bytes_per_token")
    if not row or size is None:
        return []
    if rows * row - 2 * GIB_ROUNDING <= size <= (rows + page) * row + 2 * GIB_ROUNDING:
        return []
    return [
        f"{rank.rank} logged {gib(size)} of {pool['name']}, "
        f"{count(rows)} rows × {count(row)} B are {gib(rows * row)}"
    ]


# -- host ---------------------------------------------------------------------------------------


def host(rank: RankFacts, expect: Mapping[str, Any], version: str) -> Answer:
    pools = expect.get("host_pools")
    if pools is None or not all(pool.get("bytes_per_token") for pool in pools):
        return [], ["the host pools could not be forecast"]
    if not rank.host_pools:
        return [], []  # named as missing by the gate already
    if len(rank.host_pools) != len(pools):
        logged = " + ".join(f"{pool['name']} {gb(pool['bytes'])}" for pool in rank.host_pools)
        named = " + ".join(str(pool["name"]) for pool in pools)
        return [
            f"{rank.rank} logged {len(rank.host_pools)} host pools ({logged}), "
            f"expected {len(pools)} ({named})"
        ], []
    wrong: List[str] = []
    unknown: List[str] = []
    rows = _device_rows(rank)
    known: Dict[str, Optional[int]] = {}
    for logged_pool, pool in _paired(rank.host_pools, pools):
        tokens = pool_tokens(pool, rows, known, version)
        if tokens is None:
            tokens = logged_pool.get("tokens")
            wrong += _within(rank, logged_pool, pool)
            if pool.get("least") is None and tokens is None and not pool.get("like"):
                unknown.append(f"the host pool {pool['name']} could not be forecast")
        else:
            wrong += _host_pool(rank, logged_pool, pool, tokens)
        known[str(pool["name"])] = tokens
    return wrong, unknown


def _device_rows(rank: RankFacts) -> Dict[str, Optional[int]]:
    rows: Dict[str, Optional[int]] = {"kv": rank.kv_tokens}
    for pool in rank.other_pools:
        rows[str(pool.get("name"))] = pool["tokens"]
    return rows


def _paired(
    logged: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]
) -> "List[Tuple[Mapping[str, Any], Mapping[str, Any]]]":
    """By name where the names are the same, else in order: older releases name them all alike."""
    names = {str(pool["name"]): pool for pool in logged}
    if set(names) == {str(pool["name"]) for pool in expected}:
        return [(names[str(pool["name"])], pool) for pool in expected]
    return list(zip(logged, expected))


def _host_pool(
    rank: RankFacts, logged: Mapping[str, Any], pool: Mapping[str, Any], tokens: int
) -> List[str]:
    size = tokens * int(pool["bytes_per_token"])
    if abs(logged["bytes"] - size) > GB_ROUNDING:
        return [
            f"{rank.rank} logged {gb(logged['bytes'])} for host pool {pool['name']}, "
            f"expected {gb(size)}"
        ]
    if logged.get("tokens") not in (None, tokens):
        return [
            f"{rank.rank} logged {count(logged['tokens'])} tokens for host pool "
            f"{pool['name']}, expected {count(tokens)}"
        ]
    return []


def _within(rank: RankFacts, logged: Mapping[str, Any], pool: Mapping[str, Any]) -> List[str]:
    """A pool that the engine sized by the memory it found: inside the band, and of whole rows."""
    wrong = []
    least, most = pool.get("least"), pool.get("most")
    size, tokens = logged["bytes"], logged.get("tokens")
    if (least is not None and size < least - GB_ROUNDING) or (
        most is not None and size > most + GB_ROUNDING
    ):
        wrong.append(
            f"{rank.rank} logged {gb(size)} for host pool {pool['name']}, "
            f"expected {gb(least or 0)} to {gb(most or 0)}"
        )
    if tokens is not None and abs(size - tokens * int(pool["bytes_per_token"])) > GB_ROUNDING:
        wrong.append(
            f"{rank.rank} logged {count(tokens)} tokens and {gb(size)} for host pool "
            f"{pool['name']}, a token is {count(pool['bytes_per_token'])} B"
        )
    return wrong
