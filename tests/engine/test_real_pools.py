"""The real engine's pools and sizing functions judge the forecast, family by family.

Geometry, parallelism, page, dtype, free memory and the host tier are drawn. Where we give a
figure, it is the engine's to the byte; where we refuse by name, the engine's answer is not asked.
Every family that is listed in ANSWERED gets figures: a refusal there is a failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from opsctl.forecast.values import NoForecast
from tests.engine.conftest import PoolJudge
from tests.engine.families import FAMILIES, Family, eagle3
from tests.engine.pools_ours import Sides, compare_device, compare_host, exact, ours

pytestmark = [pytest.mark.cpu_engine, pytest.mark.timeout(1800)]

EXAMPLES = int(os.environ.get("OPSCTL_POOL_EXAMPLES", "25"))
CARD_MIB = 97887
CARDS = {12: "NVIDIA RTX PRO 6000 Blackwell Server Edition", 9: "NVIDIA H200", 10: "NVIDIA B200"}
PAIRS = [(v, family) for family in FAMILIES for v in family.versions]


@st.composite
def cases(draw: Any, version: str, family: Family) -> dict[str, Any]:
    """A family's config with flags and free memory, as the judge reads it."""
    config = draw(family.config)
    flags: dict[str, Any] = {
        "tp_size": draw(st.sampled_from([1, 2, 4, 8])),
        "page_size": draw(st.sampled_from(family.pages)),
        "kv_cache_dtype": draw(st.sampled_from(family.dtypes)),
        "mem_fraction_static": draw(st.floats(0.6, 0.95).map(lambda f: round(f, 3))),
    }
    if family.attention:
        flags["attention_backend"] = family.attention
    if flags["tp_size"] > 1 and draw(st.integers(0, 3)) == 0:
        groups = draw(st.sampled_from([n for n in (2, 4, 8) if n <= flags["tp_size"]]))
        flags |= {"dp_size": groups, "enable_dp_attention": True}
    if family.pipeline and draw(st.integers(0, 3)) == 0:
        flags["pp_size"] = draw(st.sampled_from([2, 3]))
    if draw(st.integers(0, 3)) == 0:
        flags["max_total_tokens"] = draw(st.integers(1024, 2_000_000))
    if draw(st.booleans()):
        flags["max_running_requests"] = draw(st.integers(8, 512))
    host = 1 << 45
    if version in family.tiered and draw(st.booleans()):
        flags |= draw(tiers())
        if version != "0.5.9" and not flags.keys() & {"hicache_ratio", "hicache_size"}:
            host = draw(st.integers(60, 2000)) << 30
    flags |= draw(of_kind(family.kind, version))
    if flags.get("disable_radix_cache"):  # the engine refuses both
        tier = ("enable_hierarchical_cache", "hicache_ratio", "hicache_size")
        flags = {name: value for name, value in flags.items() if name not in tier}
    if draw(st.integers(0, 3)) == 0:
        flags["context_length"] = draw(st.sampled_from([512, 1000, 2048]))
    draft = None
    if family.drafts and "pp_size" not in flags and draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from(family.drafts))
        inside = draw(st.sampled_from(["inside", config]))
        draft = inside if kind == "mtp" else draw(eagle3())
        flags |= speculation(kind)
    capability = draw(st.sampled_from([(12, 0), (9, 0)])) if family.attention else (12, 0)
    before, before_gib = exact(draw(st.floats(60, 94)))
    reserve = (1 - flags["mem_fraction_static"]) * before_gib
    after, after_gib = exact(min(before_gib, reserve + draw(st.floats(0.5, 50))))
    stages = flags.get("pp_size", 1)
    return {
        "config": config,
        "draft": draft,
        "flags": flags,
        "before": before_gib,
        "after": after_gib,
        "before_bytes": before,
        "after_bytes": after,
        "memory_mib": CARD_MIB,
        "host_available": host,
        "capability": capability,
        "card": CARDS[capability[0]],
        "stage": draw(st.integers(0, stages - 1)),
    }


def speculation(kind: str) -> dict[str, Any]:
    return {
        "speculative_algorithm": "EAGLE" if kind == "mtp" else "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }


@st.composite
def tiers(draw: Any) -> dict[str, Any]:
    by_size = {"hicache_size": draw(st.integers(60, 300))}
    by_ratio = {"hicache_ratio": draw(st.floats(1.1, 5).map(lambda r: round(r, 2)))}
    return {"enable_hierarchical_cache": True, **draw(st.sampled_from([by_size, by_ratio, {}]))}


@st.composite
def of_kind(draw: Any, kind: str, version: str) -> dict[str, Any]:
    """Flags that only some families know."""
    found: dict[str, Any] = {}
    if kind == "window" and draw(st.booleans()):
        found["swa_full_tokens_ratio"] = draw(st.floats(0.1, 1).map(lambda r: round(r, 2)))
    if kind == "sparse" and draw(st.booleans()):
        name = "nsa" if version == "0.5.9" else "dsa"
        backend = draw(st.sampled_from(["trtllm", "flashmla_kv", "flashmla_sparse", "tilelang"]))
        found |= {f"{name}_prefill_backend": backend, f"{name}_decode_backend": backend}
    if kind == "recurrent":
        choices: list[dict[str, Any]] = [
            {"mamba_full_memory_ratio": draw(st.floats(0.1, 2).map(lambda r: round(r, 2)))},
            {"max_mamba_cache_size": draw(st.integers(64, 400))},
            {"disable_radix_cache": True, "max_running_requests": draw(st.integers(16, 200))},
            {"mamba_ssm_dtype": "bfloat16"},
            {},
        ]
        found |= draw(st.sampled_from(choices))
    return found


# What the engine itself does not start with: no figure is owed.
_REFUSED = (
    "Not enough memory",
    "Loaded weights leave no",
    "cannot hold even one request",
    "too small to serve",
)


def judged(version: str, family: Family, judge: PoolJudge, asked: dict[str, Any]) -> str | None:
    """What differs; None if nothing does. NoForecast is passed on."""
    said = judge.ask(asked)
    if "error" in said:
        assume(not any(text in said["error"] for text in _REFUSED))
    found, pools = ours(version, asked)
    sides = Sides()
    if "error" in said:
        sides.lines.append(f"the engine refuses, we do not: {said['error']} at {said['where']}")
    else:
        compare_device(found, said, sides)
        if "host" in said:
            compare_host(pools, said, sides)
    if not sides.lines:
        return None
    return "\n".join([*sides.lines, json.dumps(asked), json.dumps(said)])


# Families that we refuse by name, whole, on a version: (name, version).
REFUSED: set[tuple[str, str]] = {("deepseek v4", "0.5.23")}


@pytest.mark.parametrize(
    ("version", "family"), PAIRS, ids=[f"{family.name}-{version}" for version, family in PAIRS]
)
def test_pools_are_the_engines(
    pool_judges: Callable[[str], PoolJudge], version: str, family: Family
) -> None:
    judge, refusals, answered = pool_judges(version), [], []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def look(data: st.DataObject) -> None:
        asked = data.draw(cases(version, family))
        try:
            differs = judged(version, family, judge, asked)
        except NoForecast as reason:
            refusals.append(str(reason))
            return
        answered.append(asked)
        if differs:
            pytest.fail(f"{family.name}, {version}:\n{differs}")

    look()
    if (family.name, version) in REFUSED:
        assert not answered, "answered now: take it off REFUSED"
    else:
        assert len(answered) >= EXAMPLES // 2, f"refused too often: {sorted(set(refusals))}"
