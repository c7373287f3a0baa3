"""What a service takes now beside what it would take: one row a figure, each with its basis. Pure.

Now: what the ranks of the running start logged, and what the host shows. Then: the forecast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.forecast.document import kv_bytes
from opsctl.forecast.host.memory import process
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.values import COMPUTED, ESTIMATED, Figure, HostPool

LOGGED, SHOWN = "logged", "shown"
TOKENS, GIB, GB = "tokens", "GiB", "GB"  # how a figure is shown; in bytes but for tokens
_INSIDE = ("kv", "indexer")  # one pool in the log

Rank = Mapping[str, Any]  # RankFacts as JSON


@dataclass(frozen=True)
class Row:
    """`scope`: "rank" (of each rank) or "host". `unit`: TOKENS, else bytes that are shown as GiB
    or GB, as the engine does. None: not known, or not there."""

    name: str
    scope: str
    unit: str
    now: int | None
    now_basis: str
    then: int | None
    least: int | None
    most: int | None
    then_basis: str
    source: str = ""

    def as_json(self) -> dict[str, Any]:
        unit = TOKENS if self.unit == TOKENS else "bytes"
        return {
            "name": self.name,
            "scope": self.scope,
            "unit": unit,
            "now": self.now,
            "now_basis": self.now_basis,
            "then": self.then,
            "then_band": [self.least, self.most],
            "then_basis": self.then_basis,
            "then_source": self.source,
        }


def rows(said: Outlook | None, facts: Mapping[str, Any]) -> tuple[Row, ...]:
    """`facts`: the host's answer. Without a forecast only what is now."""
    running: Mapping[str, Rank] = (facts.get("running") or {}).get("ranks") or {}
    found = list(_ranks(said, running))
    found += _totals(said, running)
    found.append(_left(said, facts))
    return tuple(row for row in found if row.now is not None or row.then is not None)


def _row(name: str, scope: str, unit: str, now: int | None, basis: str, then: Figure | None) -> Row:
    told = basis if now is not None else ""
    if then is None:
        return Row(name, scope, unit, now, told, None, None, None, "")
    return Row(
        name, scope, unit, now, told, then.value, then.least, then.most, then.basis, then.source
    )


def _ranks(said: Outlook | None, running: Mapping[str, Rank]) -> Iterator[Row]:
    devices = said.result.devices if said is not None else ()
    if not devices:
        yield from _stage(said, None, list(running.values()), "")
    for n, device in enumerate(devices):
        part = f"PP{device.stage}"
        several = len(devices) > 1
        here = [rank for name, rank in running.items() if not several or part in name.split()]
        yield from _stage(said, n, here, f"{part} " if several else "")


def _stage(
    said: Outlook | None, place: int | None, ranks: Sequence[Rank], head: str
) -> Iterator[Row]:
    def row(name: str, unit: str, now: Iterable[int | None], then: Figure | None) -> Row:
        figures = list(now)
        basis = LOGGED if len(set(figures)) < 2 else f"{LOGGED}; ranks differ, the least"
        return _row(head + name, "rank", unit, _least(figures), basis, then)

    device = said.result.devices[place] if said is not None and place is not None else None
    tokens, size = (device.tokens, kv_bytes(device)) if device else (None, None)
    yield row("KV tokens", TOKENS, (r.get("kv_tokens") for r in ranks), tokens)
    yield row("KV cache", GIB, (r.get("kv_bytes") for r in ranks), size)
    planned = {p.name: p.bytes for p in device.pools if p.name not in _INSIDE} if device else {}
    logged = {name for r in ranks for name in _others(r)}
    for name in dict.fromkeys([*planned, *sorted(logged)]):
        now = [_others(r).get(name) for r in ranks]
        yield row(f"pool {name}", GIB, now, planned.get(name))
    weights = said.weights if said is not None else None
    yield row("weights", GIB, (r.get("weights_bytes") for r in ranks), weights)
    yield from _host_pools(said, place, ranks, row)


def _others(rank: Rank) -> dict[str, int]:
    """Device pools beside the main one that a rank logged."""
    found = {
        str(p.get("name")): int(p["bytes"])
        for p in rank.get("other_pools") or ()
        if p.get("name") and p.get("bytes") is not None
    }
    draft = (rank.get("draft") or {}).get("kv_bytes")
    return found if draft is None else {**found, "draft": int(draft)}


def _host_pools(said: Outlook | None, place: int | None, ranks: Sequence[Rank], row: Any) -> Any:
    """By name where both sides have the same names, else one row for their sum."""
    planned = said.result.pools[place] if said is not None and place is not None else ()
    then = {pool.name: _pool(said, pool) for pool in planned or () if not pool.refused}
    now = [{str(p.get("name")): int(p["bytes"]) for p in r.get("host_pools") or ()} for r in ranks]
    names = {name for one in now for name in one}
    counts = {len(r.get("host_pools") or ()) for r in ranks}
    if len(then) > 1 and (names <= set(then) and counts <= {0, len(then)}):
        for name in then:
            yield row(f"host pool {name}", GB, [one.get(name) for one in now], then[name])
        return
    sums = [
        sum(int(p["bytes"]) for p in r.get("host_pools") or ()) or None for r in ranks
    ]  # a tier that is off has no figure
    yield row("host pools", GB, sums, _sum(list(then.values())))


def _pool(said: Outlook | None, pool: HostPool) -> Figure | None:
    if pool.bytes is None or said is None:
        return None
    tokens = said.result.device.tokens
    basis = COMPUTED if pool.size and not pool.auto else tokens.basis if tokens else ESTIMATED
    bounded = pool.least is not None or pool.most is not None
    how = "hicache-size" if pool.size else "hicache-ratio × tokens"
    return Figure(
        pool.bytes,
        pool.least if bounded else pool.bytes,
        pool.most if bounded else pool.bytes,
        ESTIMATED if pool.auto else basis,
        "the engine chooses by the memory that it finds" if pool.auto else how,
    )


def _sum(figures: Sequence[Figure | None]) -> Figure | None:
    known = [one for one in figures if one is not None]
    if not known or len(known) < len(figures):
        return None
    return Figure(
        sum(one.value for one in known),
        sum(one.least or 0 for one in known),
        sum(one.most or 0 for one in known),
        known[0].basis,
        known[0].source,
    )


def _totals(said: Outlook | None, running: Mapping[str, Rank]) -> Iterator[Row]:
    now = sum(int(p["bytes"]) for r in running.values() for p in r.get("host_pools") or ())
    total = said.result.host_total if said is not None and said.tier else None
    then = None
    if total is not None and said is not None:
        ranks = len(said.case.ranks)
        words = f"{ranks} rank{'' if ranks == 1 else 's'}, as they are really taken"
        then = Figure(total, total, total, COMPUTED, words)
    yield _row("host pools of all ranks", "host", GB, now or None, LOGGED, then)


def _left(said: Outlook | None, facts: Mapping[str, Any]) -> Row:
    now = (facts.get("memory") or {}).get("available")
    after = said.result.fit.available_after if said is not None else None
    then = None
    if said is not None and after is not None:
        one = process(said.case)
        words = f"processes of a rank beside its pools: {one.basis}, {one.source}"
        then = Figure(after, said.result.fit.least, None, one.basis, words)
    return _row("RAM left", "host", GIB, now, SHOWN, then)


def _least(values: Sequence[int | None]) -> int | None:
    """None if any rank logged none: what is not known of one is not known of all."""
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None
