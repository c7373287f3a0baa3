"""The gate `ranks`: every expected rank logged its KV cache and host pools, and as forecast."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import poolgate
from .expect import GIB_ROUNDING, count, gb, gib, of_stage
from .model import FAIL, INCONCLUSIVE, PASS, Check, RankFacts, StartFacts
from .poolgate import span


def ranks(manifest: Mapping[str, Any], facts: StartFacts) -> Check:
    """Fails on a rank that is missing, differs from its peers, or from the expectation.

    Without an expectation, or with one that leaves a figure open, the answer is inconclusive.
    """
    expected: Sequence[str] = manifest["ranks"]
    tiered = bool(manifest["flags"].get("enable-hierarchical-cache"))
    expect: Optional[Mapping[str, Any]] = manifest.get("expect")
    evidence = _evidence(expected, facts, tiered)
    problems = _missing(expected, facts, tiered)
    here = [facts.ranks[name] for name in expected if name in facts.ranks]
    problems += _unequal(here)
    open_points: List[str] = []
    if expect is None:
        open_points.append("there is no expectation to compare with")
    else:
        version = str(manifest["engine"]["version"])
        for rank in here:
            wrong, unknown = _against(rank, of_stage(expect, rank.rank), tiered, version)
            problems += wrong
            open_points += unknown
    if problems:
        return Check("ranks", FAIL, "; ".join(_joined(problems)), evidence)
    figures = _figures(here, tiered)
    if open_points:
        detail = f"{figures}; {'; '.join(_joined(open_points))}"
        return Check("ranks", INCONCLUSIVE, detail, evidence)
    return Check("ranks", PASS, f"{figures}, as expected", evidence)


def _evidence(expected: Sequence[str], facts: StartFacts, tiered: bool) -> List[str]:
    """What each rank logged, those first that differ from most: a reader may see only a few."""
    lines = {
        name: _seen(facts.ranks[name], tiered) if name in facts.ranks else f"{name}: nothing logged"
        for name in expected
    }
    figures = [line.partition(": ")[2] for line in lines.values()]
    usual = max(figures, key=figures.count) if figures else ""  # of equals the first, each time
    return sorted(lines.values(), key=lambda line: line.partition(": ")[2] == usual)


def _seen(rank: RankFacts, tiered: bool) -> str:
    tokens = "no KV cache" if rank.kv_tokens is None else f"{count(rank.kv_tokens)} tokens"
    size = "" if rank.kv_bytes is None else f", {gib(rank.kv_bytes)}"
    size += "".join(
        f"; {pool['name']} {count(pool['tokens'])}, {gib(pool['bytes'])}"
        for pool in rank.other_pools
        if pool.get("name") and None not in (pool["tokens"], pool["bytes"])
    )
    pools = ", ".join(f"{pool['name']} {gb(pool['bytes'])}" for pool in rank.host_pools) or "none"
    return f"{rank.rank}: {tokens}{size}" + (f"; host pools: {pools}" if tiered else "")


def _figures(here: Sequence[RankFacts], tiered: bool) -> str:
    text = f"{len(here)} of {len(here)} ranks"
    if here and here[0].kv_tokens is not None:
        text += f": {count(here[0].kv_tokens)} tokens"
        if here[0].kv_bytes is not None:
            text += f" ({gib(here[0].kv_bytes)})"
    if tiered and here and here[0].host_pools:
        text += ", host pools " + " + ".join(gb(pool["bytes"]) for pool in here[0].host_pools)
    return text


def _missing(expected: Sequence[str], facts: StartFacts, tiered: bool) -> List[str]:
    silent, poolless = [], []
    for name in expected:
        rank = facts.ranks.get(name)
        if rank is None or rank.kv_tokens is None:
            silent.append(name)
        elif tiered and not rank.host_pools:
            poolless.append(name)
    problems = []
    if silent:
        problems.append(f"{', '.join(silent)} missing: no KV cache logged in this start")
    if poolless:
        problems.append(f"{', '.join(poolless)} missing: no host pool logged in this start")
    strange = [name for name in facts.ranks if name not in expected]
    if strange:
        problems.append(f"{', '.join(sorted(strange))} logged, but not expected")
    return problems


def _unequal(here: Iterable[RankFacts]) -> List[str]:
    """Ranks of one replica and stage hold the same pools. The engine takes the minimum over the
    ranks of a replica, and a stage has its own layers, hence its own bytes."""
    groups: Dict[str, List[RankFacts]] = {}
    for rank in here:
        group = " ".join(part for part in rank.rank.split() if not part.startswith("TP"))
        groups.setdefault(group, []).append(rank)
    problems = []
    for members in groups.values():
        compared = (
            ("tokens", _tokens),
            ("bytes", _bytes),
            ("other pools", _others),
            ("host pools", _pools),
        )
        for what, value in compared:
            known = [(rank.rank, value(rank)) for rank in members if value(rank) not in (None, "")]
            figures = [figure for _, figure in known]
            if len(set(figures)) > 1:
                usual = max(set(figures), key=figures.count)
                odd = [f"{name} {figure}" for name, figure in known if figure != usual]
                problems.append(f"{what} differ: {', '.join(odd)}; the others {usual}")
    return problems


def _tokens(rank: RankFacts) -> Optional[str]:
    return None if rank.kv_tokens is None else count(rank.kv_tokens)


def _bytes(rank: RankFacts) -> Optional[str]:
    return None if rank.kv_bytes is None else gib(rank.kv_bytes)


def _others(rank: RankFacts) -> str:
    return " + ".join(
        f"{pool.get('name') or 'pool'} {count(pool['tokens'] or 0)}" for pool in rank.other_pools
    )


def _pools(rank: RankFacts) -> str:
    return " + ".join(gb(pool["bytes"]) for pool in rank.host_pools)


def _against(
    rank: RankFacts, expect: Mapping[str, Any], tiered: bool, version: str
) -> Tuple[List[str], List[str]]:
    """What is wrong, and what could not be judged, of one rank."""
    if rank.kv_tokens is None:
        return [], []
    wrong, unknown = [], []
    kv = expect.get("kv") or {}
    least, most, tokens = kv.get("min"), kv.get("max"), rank.kv_tokens
    if (least is not None and tokens < least) or (most is not None and tokens > most):
        wrong.append(f"{rank.rank} has {count(tokens)} tokens, expected {span(least, most)}")
    elif least is None or most is None:
        unknown.append("the number of tokens could not be forecast")
    wrong += _kv_bytes(rank, kv, expect)
    checks = [poolgate.device(rank, expect)]
    if tiered:
        checks.append(poolgate.host(rank, expect, version))
    for more_wrong, more_unknown in checks:
        wrong += more_wrong
        unknown += more_unknown
    return wrong, unknown


def _kv_bytes(rank: RankFacts, kv: Mapping[str, Any], expect: Mapping[str, Any]) -> List[str]:
    """The engine allocates up to one page more than the tokens, and rounds K and V apart."""
    cell = kv.get("bytes_per_token")
    if not cell or rank.kv_bytes is None or rank.kv_tokens is None:
        return []
    page = max([1, *(int(pool.get("page") or 1) for pool in expect.get("host_pools") or [])])
    low = rank.kv_tokens * cell - 2 * GIB_ROUNDING
    high = (rank.kv_tokens + page) * cell + 2 * GIB_ROUNDING
    if low <= rank.kv_bytes <= high:
        return []
    return [
        f"{rank.rank} logged {gib(rank.kv_bytes)} of KV cache, "
        f"{count(rank.kv_tokens)} tokens × {count(cell)} B are {gib(rank.kv_tokens * cell)}"
    ]


def _joined(texts: Iterable[str]) -> List[str]:
    """Each text once, in order: eight ranks that lack the same figure say it once."""
    return list(dict.fromkeys(texts))
