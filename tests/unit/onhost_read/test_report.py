"""The four lines that verify closes with."""

from typing import Any

from opsctl.onhost.model import FAIL, INCONCLUSIVE, PASS, Check, RankFacts, StartFacts
from opsctl.onhost.report import lines

GIB = 1 << 30
NAMES = [f"TP{n}" for n in range(8)]
MEMINFO = {
    "total": 471020339 << 10,
    "available": 82418073 << 10,
    "swap_total": 8 * GIB,
    "swap_used": 0,
}
GOOD = [Check(name, PASS, "") for name in ("generation", "reasoning", "tools")]


def manifest(**changed: Any) -> dict[str, Any]:
    pool = {"name": "kv", "bytes_per_token": 70272, "ratio": 4.0, "size": None, "page": 1}
    return {
        "engine": {"version": "0.5.9"},
        "model": {"path": "/srv/models/Kimi-K2.5", "served_name": "kimi-k2.5"},
        "flags": {"enable-hierarchical-cache": True},
        "ranks": NAMES,
        "expect": {"host_pools": [pool]},
        **changed,
    }


def facts() -> StartFacts:
    found = StartFacts(ready=True)
    for name in NAMES:
        found.ranks[name] = RankFacts(
            name,
            kv_tokens=159277,
            kv_bytes=round(10.42 * GIB),
            host_pools=[{"name": "kv", "bytes": 44_770_000_000, "tokens": None}],
        )
    return found


def test_the_reference_report() -> None:
    assert lines(manifest(), facts(), MEMINFO, GOOD) == [
        "GPU KV cache: 159,277 tokens × 8 GPUs (10.42 GiB per GPU)",
        "Host tier: 44.77 GB × 8 = 358 GB pinned; prefix capacity 159,277 → 637,109 tokens, 4.0 ×",
        "RAM: 370 GiB used of 449, 78 GiB available, no swap",
        "Model: kimi-k2.5 generates; reasoning parser and tool calls work",
    ]


def test_missing_ranks_are_named_and_not_counted() -> None:
    found = facts()
    del found.ranks["TP3"]
    found.ranks["TP6"].kv_tokens = None
    found.ranks["TP6"].kv_bytes = None
    found.ranks["TP7"].host_pools = []
    kv, tier, _, _ = lines(manifest(), found, MEMINFO, GOOD)
    assert kv == "GPU KV cache: 159,277 tokens × 6 GPUs (10.42 GiB per GPU); TP3, TP6 missing"
    assert tier.startswith("Host tier: 44.77 GB × 6 = 269 GB pinned")
    assert tier.endswith("; TP7, TP3 missing")


def test_ranks_that_differ_are_shown_as_they_are() -> None:
    found = facts()
    found.ranks["TP2"].kv_tokens = 150000
    found.ranks["TP2"].host_pools = [{"name": "kv", "bytes": 40_000_000_000, "tokens": None}]
    kv, tier, _, _ = lines(manifest(), found, MEMINFO, GOOD)
    assert "159,277 / 150,000 tokens × 8 GPUs" in kv
    assert "44.77 GB / 40.00 GB × 8 = 353 GB pinned" in tier
    assert "prefix capacity" not in tier


def test_nothing_logged() -> None:
    kv, tier, ram, model = lines(manifest(), StartFacts(), {}, [])
    assert kv == "GPU KV cache: not logged by any of 8 ranks"
    assert tier == "Host tier: no pool logged by any of 8 ranks"
    assert ram == "RAM: not read"
    assert model == "Model: kimi-k2.5 was not asked"


def test_without_the_tier_or_an_expectation() -> None:
    assert lines(manifest(flags={}), facts(), MEMINFO, GOOD)[1] == "Host tier: off"
    tier = lines(manifest(expect=None), facts(), MEMINFO, GOOD)[1]
    assert tier == "Host tier: 44.77 GB × 8 = 358 GB pinned"


def test_tokens_of_the_host_pool_as_logged_need_no_expectation() -> None:
    found = facts()
    for rank in found.ranks.values():
        rank.host_pools[0]["tokens"] = 637109
    assert "→ 637,109 tokens" in lines(manifest(expect=None), found, MEMINFO, GOOD)[1]


def test_a_small_host_with_swap() -> None:
    small = {"total": 15 * GIB, "available": 6 * GIB + GIB // 2, "swap_used": GIB}
    ram = lines(manifest(), facts(), small, GOOD)[2]
    assert ram == "RAM: 8.5 GiB used of 15, 6.5 GiB available, 1.00 GiB of swap in use"


def test_a_model_that_does_not_answer_and_gates_that_were_not_asked() -> None:
    bad = [Check("generation", FAIL, "no answer")]
    assert lines(manifest(), facts(), MEMINFO, bad)[3] == "Model: kimi-k2.5 does not generate"
    only = [Check("generation", PASS, "")]
    unnamed = manifest(model={"path": "/srv/m", "served_name": None})
    assert lines(unnamed, facts(), MEMINFO, only)[3] == "Model: /srv/m generates"


def test_a_parser_that_fails_is_told_with_its_reason() -> None:
    checks = [
        Check("generation", PASS, ""),
        Check("reasoning", FAIL, "reasoning_content is empty"),
        Check("tools", INCONCLUSIVE, "raise it"),
    ]
    assert lines(manifest(), facts(), MEMINFO, checks)[3] == (
        "Model: kimi-k2.5 generates; reasoning parser fails (reasoning_content is empty); "
        "tool calls inconclusive (raise it)"
    )
