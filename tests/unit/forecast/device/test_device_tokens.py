"""Free memory → tokens: the reference deployment to the digit, bands, caps, pages, and where the
figures come from. GiB = 2^30 bytes."""

from __future__ import annotations

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.values import COMPUTED, ESTIMATED, MEASURED, Figure, NoForecast, NoStart
from tests.unit.forecast.device.cases import EAGLE, GiB, case, gqa, mla

REFERENCE = mla(architecture="KimiK25ForConditionalGeneration", multimodal=True)


def test_the_reference_deployment_from_its_rounded_log_lines() -> None:
    (found,) = device(case(REFERENCE, tp_size=8))
    assert found.tokens is not None and found.reserve is not None and found.rest is not None
    assert (found.tokens.value, found.tokens.least, found.tokens.most) == (
        159276,
        159191 - 955,  # 64 MiB: what the next start may find otherwise
        159362 + 955,
    )
    assert (found.cell, found.charged, found.page, found.fraction) == (70272, 70272, 1, 0.88)
    assert round(found.reserve.value / GiB, 3) == 11.286
    assert round(found.rest.value / GiB, 3) == 10.424
    assert found.tokens.basis == COMPUTED


def test_the_reference_deployment_as_its_earlier_start_logged() -> None:
    (found,) = device(case(REFERENCE, tokens=159277, tp_size=8))
    drift = (64 << 20) // 70272
    assert found.tokens == Figure(
        159277, 159277 - drift, 159277 + drift, MEASURED, "an earlier start"
    )
    (pool,) = found.pools
    assert (pool.name, pool.bytes_per_row) == ("kv", 70272)
    assert round(159277 * 70272 / GiB, 2) == 10.42


def test_exact_bytes_of_one_start_drift_as_its_tokens_do() -> None:
    """Of two starts with the same settings free memory differs as the tokens do."""
    (found,) = device(case(gqa(32, 8, 128), exact=True, before=78.5, after=63.48))
    assert found.tokens is not None and found.tokens.least is not None
    (logged,) = device(case(gqa(32, 8, 128), tokens=found.tokens.value))
    assert logged.tokens is not None and logged.tokens.least is not None
    assert found.tokens.most == logged.tokens.most
    assert found.tokens.least == pytest.approx(logged.tokens.least, abs=1)


@pytest.mark.parametrize(
    ("version", "more", "tokens"),
    [
        # 2454421 tokens of Kimi-K2.5 on MI355X, no fraction given: 0.908 × 0.90974
        ("0.5.9", {"card": "mi355x", "before": 283.48, "after": 209.96}, 2454421),
    ],
)
def test_kimi_without_a_fraction_on_mi355x(
    version: str, more: dict[str, object], tokens: int
) -> None:
    shape = mla(
        architecture="KimiK25ForConditionalGeneration",
        multimodal=True,
        vision=(27, 1152),
        q_heads=64,
        context=262144,
    )
    asked = case(shape, version, mem_fraction_static=None, tp_size=8, **more)  # type: ignore[arg-type]
    (found,) = device(asked)
    assert found.tokens is not None and found.fraction is not None
    assert round(found.fraction, 4) == 0.8260
    assert abs(found.tokens.value - tokens) <= tokens * 0.002


def test_no_figures_at_all() -> None:
    (found,) = device(case(gqa(32, 8, 128), before=None, after=None, total=False))
    assert found.tokens is None and found.rest is None and found.pools == ()
    assert (found.cell, found.page) == (131072, 1)


def test_a_cap_alone_bounds_from_above() -> None:
    asked = case(
        gqa(32, 8, 128), before=None, after=None, total=False, max_total_tokens=1000, page_size=64
    )
    (found,) = device(asked)
    assert found.tokens == Figure(960, None, 960, ESTIMATED, "max-total-tokens")


@pytest.mark.parametrize("cap", [1000, 999_999_999])
def test_caps_and_pages_cut_value_and_edges_alike(cap: int) -> None:
    asked = case(gqa(32, 8, 128), max_total_tokens=cap, page_size=64)
    (found,) = device(asked)
    (free,) = device(case(gqa(32, 8, 128)))
    assert found.tokens is not None and free.tokens is not None
    for ours, whole in zip(
        (found.tokens.value, found.tokens.least, found.tokens.most),
        (free.tokens.value, free.tokens.least, free.tokens.most),
        strict=True,
    ):
        assert whole is not None
        assert ours == min(whole, cap) // 64 * 64


def test_before_any_start_the_band_holds_the_truth() -> None:
    """The reference deployment without its log: 72.34 GiB of weights, told within 2 GiB."""
    weights = Figure(
        round(72.0 * GiB), round(71.0 * GiB), round(73.6 * GiB), ESTIMATED, "tensor shapes"
    )
    asked = case(REFERENCE, before=None, after=None, weights=weights, tp_size=8)
    (found,) = device(asked)
    assert found.tokens is not None and found.tokens.basis == ESTIMATED
    assert found.tokens.least is not None and found.tokens.most is not None
    assert found.tokens.least <= 159277 <= found.tokens.most


def test_an_error_before_the_weights_moves_both_figures() -> None:
    """free after = free before − weights: one error, not two by themselves."""
    weights = Figure(40 * GiB, 40 * GiB, 40 * GiB, COMPUTED, "tensor shapes")
    asked = case(gqa(32, 8, 128), after=None, weights=weights)
    (found,) = device(asked)
    assert found.rest is not None and found.rest.least is not None and found.rest.most is not None
    half, drift = 0.005 * GiB, 64 << 20
    assert found.rest.most - found.rest.value == pytest.approx(0.88 * half + drift, rel=0.01)
    assert found.rest.value - found.rest.least == pytest.approx(0.88 * half + drift, rel=0.01)


def test_draft_weights_count_from_0_5_14_on() -> None:
    weights = Figure(40 * GiB, 40 * GiB, 40 * GiB, COMPUTED, "tensor shapes")
    draft = Figure(2 * GiB, 2 * GiB, 2 * GiB, COMPUTED, "the draft's tensor shapes")
    rest = {}
    for version in ("0.5.13", "0.5.14"):
        asked = case(
            mla(), version, after=None, weights=weights, draft_weights=draft, draft=mla(1), **EAGLE
        )
        (found,) = device(asked)
        assert found.rest is not None
        rest[version] = found.rest.value
    assert rest["0.5.13"] - rest["0.5.14"] == 2 * GiB


def test_no_rest_is_no_start() -> None:
    with pytest.raises(NoStart, match="the start would fail"):
        device(case(gqa(32, 8, 128), before=94.05, after=8.0))


def test_images_are_kept_back_from_0_5_18_on() -> None:
    shape, found = gqa(32, 8, 128, multimodal=True), {}
    for version in ("0.5.17", "0.5.18"):
        (one,) = device(case(shape, version, mm_feature_transport="cpu"))
        assert one.rest is not None
        found[version] = one.rest.value
    assert found["0.5.17"] - found["0.5.18"] == pytest.approx(100 << 20, abs=2)
    (doubted,) = device(case(shape, "0.5.18", exact=True))
    assert doubted.rest is not None and doubted.rest.least is not None
    assert doubted.rest.value - doubted.rest.least == pytest.approx((1 << 30) + (64 << 20), abs=2)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"dcp_size": 2}, "dcp-size"),
        ({"attn_cp_size": 2}, "attn-cp-size"),
        ({"enable_hisparse": True}, "enable-hisparse"),
        ({"enable_unified_memory": True}, "enable-unified-memory"),
        ({"disaggregation_mode": "decode"}, "disaggregation-mode"),
        ({"enable_lora": True}, "enable-lora"),
        ({"speculative_algorithm": "DFLASH"}, "DFLASH"),
        ({"kv_cache_dtype": "int4"}, "int4"),
    ],
)
def test_what_is_not_forecast_is_refused_by_name(flags: dict[str, object], name: str) -> None:
    with pytest.raises(NoForecast, match=name):
        device(case(mla(), draft=mla(1), **flags))  # type: ignore[arg-type]


def test_sizing_after_the_graphs_is_refused_where_it_exists() -> None:
    env = {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}
    with pytest.raises(NoForecast, match="SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"):
        device(case(gqa(32, 8, 128), "0.5.23", env=env))
    assert device(case(gqa(32, 8, 128), "0.5.9", env=env))


def test_steps_tell_the_derivation_and_nothing_is_told_unasked() -> None:
    asked = case(REFERENCE, tp_size=8)
    assert device(asked)[0].steps == ()
    text = "\n".join(device(asked, steps=True)[0].steps)
    for part in ("(512 + 64) elements × 61 layers × 2 B", "70,272 B", "10.424 GiB", "159,276"):
        assert part in text
