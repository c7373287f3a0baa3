"""The four lines that `verify` closes with; correct also if figures are missing or differ."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from .expect import GB, GiB, count, gb, gib, of_stage, pool_tokens
from .model import PASS, Check, RankFacts, StartFacts


def lines(
    manifest: Mapping[str, Any],
    facts: StartFacts,
    meminfo: Mapping[str, int],
    checks: Iterable[Check],
) -> List[str]:
    """GPU KV cache, host tier, RAM, model: what is, not what was expected."""
    seen = [facts.ranks[name] for name in manifest["ranks"] if name in facts.ranks]
    missing = [name for name in manifest["ranks"] if name not in facts.ranks]
    return [
        _kv_line(seen, manifest["ranks"], missing),
        _tier_line(manifest, seen),
        _memory_line(meminfo),
        _model_line(manifest, list(checks)),
    ]


def _kv_line(seen: Sequence[RankFacts], expected: Sequence[str], missing: Sequence[str]) -> str:
    known = [rank for rank in seen if rank.kv_tokens is not None]
    silent = [*missing, *(rank.rank for rank in seen if rank.kv_tokens is None)]
    if not known:
        return f"GPU KV cache: not logged by any of {len(expected)} ranks"
    tokens = _each([count(rank.kv_tokens or 0) for rank in known])
    text = f"GPU KV cache: {tokens} tokens × {len(known)} GPUs"
    sizes = [gib(rank.kv_bytes) for rank in known if rank.kv_bytes is not None]
    if sizes:
        text += f" ({_each(sizes)} per GPU)"
    text += "".join(f", {_each(words)}" for words in _other_pools(known))
    return text + (f"; {', '.join(silent)} missing" if silent else "")


_POOLS = {"swa": "tokens of sliding window", "mamba": "slots of recurrent state"}


def _other_pools(ranks: Sequence[RankFacts]) -> List[List[str]]:
    """What a hybrid model keeps beside its KV cache, by kind, of every rank."""
    found: Dict[str, List[str]] = {}
    for rank in ranks:
        for pool in rank.other_pools:
            name = pool.get("name") or ""
            if name in _POOLS and None not in (pool["tokens"], pool["bytes"]):
                words = f"{count(pool['tokens'])} {_POOLS[name]} ({gib(pool['bytes'])})"
                found.setdefault(name, []).append(words)
    return list(found.values())


def _tier_line(manifest: Mapping[str, Any], seen: Sequence[RankFacts]) -> str:
    if not manifest["flags"].get("enable-hierarchical-cache"):
        return "Host tier: off"
    pooled = [rank for rank in seen if rank.host_pools]
    if not pooled:
        return f"Host tier: no pool logged by any of {len(manifest['ranks'])} ranks"
    sizes = [sum(int(pool["bytes"]) for pool in rank.host_pools) for rank in pooled]
    text = f"Host tier: {_each([gb(size) for size in sizes])} × {len(pooled)}"
    text += f" = {sum(sizes) / GB:,.0f} GB pinned"
    text += _capacity(manifest, pooled)
    lacking = [rank.rank for rank in seen if not rank.host_pools]
    lacking += [name for name in manifest["ranks"] if name not in {rank.rank for rank in seen}]
    return text + (f"; {', '.join(lacking)} missing" if lacking else "")


def _capacity(manifest: Mapping[str, Any], pooled: Sequence[RankFacts]) -> str:
    """Device and host tokens, if all ranks have the same."""
    figures = {(rank.kv_tokens, _host_tokens(manifest, rank)) for rank in pooled}
    if len(figures) != 1:
        return ""
    device, host = figures.pop()
    if not device or not host:
        return ""
    return f"; prefix capacity {count(device)} → {count(host)} tokens, {host / device:.1f} ×"


def _host_tokens(manifest: Mapping[str, Any], rank: RankFacts) -> Optional[int]:
    """As logged (from 0.5.17 on), else by the engine's own rule from what was logged."""
    pool = rank.host_pools[0]
    if pool.get("tokens"):
        return int(pool["tokens"])
    rules = of_stage(manifest.get("expect") or {}, rank.rank).get("host_pools") or []
    if not rules or rank.kv_tokens is None:
        return None
    version = str(manifest["engine"]["version"])
    return pool_tokens(rules[0], {"kv": rank.kv_tokens}, {}, version)


def _memory_line(meminfo: Mapping[str, int]) -> str:
    if not meminfo:
        return "RAM: not read"
    total, available = meminfo["total"], meminfo["available"]
    swap = meminfo.get("swap_used", 0)
    return (
        f"RAM: {_whole(total - available)} GiB used of {_whole(total)}, "
        f"{_whole(available)} GiB available, {gib(swap) + ' of swap in use' if swap else 'no swap'}"
    )


def _whole(size: int) -> str:
    """As `free -h` prints it: whole GiB cut down, tenths below ten."""
    return f"{size // GiB:,}" if size >= 10 * GiB else f"{size * 10 // GiB / 10:.1f}"


def _model_line(manifest: Mapping[str, Any], checks: Sequence[Check]) -> str:
    model = manifest["model"]
    name = model.get("served_name") or model["path"]
    found = {check.id: check for check in checks}
    if "generation" not in found:
        return f"Model: {name} was not asked"
    parts = ["generates" if found["generation"].status == PASS else "does not generate"]
    for gate, what in (("reasoning", "reasoning parser"), ("tools", "tool calls")):
        check = found.get(gate)
        if check is not None:
            parts.append(f"{what} {_verdict(check)}")
    return f"Model: {name} {_sentence(parts)}"


def _sentence(parts: Sequence[str]) -> str:
    both = ["reasoning parser works", "tool calls work"]
    if list(parts[1:]) == both:
        return f"{parts[0]}; reasoning parser and tool calls work"
    return "; ".join(parts)


def _verdict(check: Check) -> str:
    plural = check.id == "tools"
    if check.status == PASS:
        return "work" if plural else "works"
    if check.status == "inconclusive":
        return f"inconclusive ({check.detail})"
    return f"{'fail' if plural else 'fails'} ({check.detail})"


def _each(figures: Sequence[str]) -> str:
    """One figure if all agree, else the range as they come: "44.77 GB" or "44.77 GB / 40.00 GB"."""
    return " / ".join(dict.fromkeys(figures))
