"""Sliding-window pools: when there is one, and how each release splits memory over both."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.values import DevicePool, Heads, NoForecast, NoStart
from tests.unit.forecast.device.cases import EAGLE, GiB, case, gqa, windowed

SAME = Heads(8, 64, 64)
GPT_OSS = windowed(SAME, SAME, 2, 36)  # 18 full, 18 with a window: 4096 B a layer at TP1, bf16
MIMO = windowed(  # 9 full layers of 4 heads, 39 with a window of 8 heads
    Heads(4, 192, 128),
    Heads(8, 192, 128),
    5,
    48,
    architecture="MiMoV2FlashForCausalLM",
)


def rows(pools: tuple[DevicePool, ...]) -> dict[str, int]:
    return {pool.name: pool.rows.value for pool in pools}


REST = 20 * GiB  # 0.88 × 100 − 68 GiB of weights
EXACT: dict[str, Any] = {"before": 100.0, "after": 32.0, "exact": True, "card": "h100"}
FULL = 18 * 2 * 8 * 64 * 2  # bytes of a token in all full layers, and as many in the others

SPLITS = [  # release, page, full, window
    ("0.5.9", 1, int(REST // (2 * FULL) * 2 * FULL / (FULL + 0.8 * FULL)), None),
    ("0.5.11", 1, int(REST // (FULL + 0.8 * FULL)), None),
    ("0.5.23", 64, int(REST // (FULL + 0.8 * FULL)) // 64 * 64, None),
    ("0.5.8", 64, int(REST // (2 * FULL) // 64 * 64 * 36 / (0.8 * 18 + 18)) // 64 * 64, None),
]


@pytest.mark.parametrize(("version", "page", "full", "_"), SPLITS)
def test_the_split_of_gpt_oss(version: str, page: int, full: int, _: None) -> None:
    (found,) = device(case(GPT_OSS, version, page_size=page, **EXACT))
    assert found.tokens is not None
    told = rows(found.pools)
    assert (found.tokens.value, told["kv"]) == (full, full)
    assert abs(told["swa"] - 0.8 * full) <= page
    assert told["swa"] % page == 0
    size = sum(pool.bytes.value for pool in found.pools)
    assert REST - 3 * page * 2 * FULL <= size <= REST + page * 2 * FULL


def test_the_ratio_is_the_flags() -> None:
    (found,) = device(case(GPT_OSS, "0.5.23", swa_full_tokens_ratio=0.25, **EXACT))
    told = rows(found.pools)
    assert told["swa"] == int(told["kv"] * 0.25)
    assert told["kv"] == int(REST // (FULL + 0.25 * FULL))


ONE_POOL = [  # model, release, flags, card
    (GPT_OSS, "0.5.7", {}, "h100"),
    (GPT_OSS, "0.5.8", EAGLE, "h100"),
    (GPT_OSS, "0.5.9", {}, "b200"),  # trtllm_mha
    (GPT_OSS, "0.5.23", {"disable_hybrid_swa_memory": True}, "h100"),
    (windowed(SAME, SAME, 2, 36, architecture="Gemma3ForCausalLM"), "0.5.2", {}, "h100"),
    (windowed(SAME, SAME, 2, 36, architecture="Gemma3ForCausalLM"), "0.5.23", {}, "h100"),
    (
        windowed(SAME, SAME, 4, 48, architecture="Llama4ForConditionalGeneration"),
        "0.5.7",
        {},
        "h100",
    ),
    (
        windowed(SAME, SAME, 4, 48, architecture="Step3p5ForCausalLM"),
        "0.5.23",
        {"enable_hierarchical_cache": True},
        "h100",
    ),
]


@pytest.mark.parametrize(("shape", "version", "flags", "card"), ONE_POOL)
def test_where_window_layers_keep_everything(
    shape: Any, version: str, flags: dict[str, Any], card: str
) -> None:
    asked = case(shape, version, before=100.0, after=32.0, card=card, draft=gqa(1, 8, 64), **flags)
    (found,) = device(asked)
    assert "swa" not in rows(found.pools)
    assert found.cell == shape.layers * 2 * 8 * 64 * 2


@pytest.mark.parametrize("version", ["0.5.8", "0.5.9", "0.5.23"])
def test_where_they_have_a_pool(version: str) -> None:
    (found,) = device(case(GPT_OSS, version, **EXACT))
    assert set(rows(found.pools)) == {"kv", "swa"}
    assert found.cell == FULL


def test_mimo_keeps_its_own_heads_by_kind() -> None:
    """PR 18039's log: 300,288 tokens of the window pool are 13.97 GiB at TP4."""
    (found,) = device(case(MIMO, "0.5.9", tp_size=4, page_size=64, **EXACT))
    per_row = {pool.name: pool.bytes_per_row for pool in found.pools}
    assert per_row == {"kv": 9 * 1 * 320 * 2, "swa": 39 * 2 * 320 * 2}
    assert (300288 + 64) * per_row["swa"] / GiB == pytest.approx(
        13.97, abs=0.011
    )  # K and V, each rounded


def test_mimo_was_counted_twice_by_0_5_8() -> None:
    (found,) = device(case(MIMO, "0.5.8", tp_size=4, page_size=64, **EXACT))
    assert found.charged == 48 * 640 + 39 * 1280
    (before,) = device(case(MIMO, "0.5.7", tp_size=4, page_size=64, **EXACT))
    assert before.charged == 9 * 640 + 39 * 1280


def test_mimo_with_a_host_tier_is_refused_where_its_pools_become_one() -> None:
    with pytest.raises(NoForecast, match="MiMoV2Flash"):
        device(case(MIMO, "0.5.9", enable_hierarchical_cache=True, **EXACT))
    assert device(case(MIMO, "0.5.14", enable_hierarchical_cache=True, **EXACT))


def test_a_window_pool_too_small_for_a_request_keeps_0_5_16_from_starting() -> None:
    tiny = {**EXACT, "max_total_tokens": 150}
    assert device(case(GPT_OSS, "0.5.15", **tiny))
    with pytest.raises(NoStart, match="window pool"):
        device(case(GPT_OSS, "0.5.16", **tiny))


def test_sizing_by_requests_is_refused() -> None:
    flags = {"disable_radix_cache": True, "max_running_requests": 64}
    assert device(case(GPT_OSS, "0.5.13", **EXACT, **flags))
    with pytest.raises(NoForecast, match="by requests"):
        device(case(GPT_OSS, "0.5.14", **EXACT, **flags))


@pytest.mark.parametrize(("version", "counted"), [("0.5.14", 0), ("0.5.15", 1)])
def test_a_draft_beside_windows_counts_as_a_full_layer(version: str, counted: int) -> None:
    asked = case(GPT_OSS, version, draft=gqa(1, 8, 64, counted=1), **EXACT, **EAGLE)
    (found,) = device(asked)
    one = 2 * 8 * 64 * 2
    assert found.charged == int((18 + counted) * one + 0.8 * (18 * one))
    assert rows(found.pools)["draft"] == found.pools[0].rows.value


@pytest.mark.parametrize(("version", "extra"), [("0.5.20", 1), ("0.5.21", 0)])
def test_a_stage_counted_the_first_layer_of_the_next(version: str, extra: int) -> None:
    asked = case(GPT_OSS, version, pp_size=2, ranks=("PP0 TP0", "PP1 TP0"), **EXACT)
    first, last = device(asked)
    one = 2 * 8 * 64 * 2
    per_row = [{pool.name: pool.bytes_per_row for pool in found.pools} for found in (first, last)]
    # layers 0 to 17: nine of each kind; layer 18 has a window
    assert per_row == [{"kv": 9 * one, "swa": (9 + extra) * one}, {"kv": 9 * one, "swa": 9 * one}]


def test_fp4_is_refused_where_the_engine_takes_more_than_it_counts() -> None:
    with pytest.raises(NoForecast, match="FP4"):
        device(case(GPT_OSS, "0.5.9", kv_cache_dtype="fp4_e2m1", **EXACT))
