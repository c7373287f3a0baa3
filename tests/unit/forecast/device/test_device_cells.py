"""Bytes of a token, by kind of attention, split, dtype and release."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.values import Geometry, Heads, NoForecast
from tests.unit.forecast.device.cases import EAGLE, case, dsa, gqa, mla

PLAIN = [  # model, flags, bytes a token and rank
    ("Kimi-K2.5, any TP", mla(), {"tp_size": 8}, 70272),
    ("Kimi-K2.5 FP8", mla(), {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"}, 35136),
    ("GLM-4.7-Flash", mla(47), {}, 54144),
    ("GLM-4.6 TP8", gqa(92, 8, 128), {"tp_size": 8}, 47104),
    ("GLM-4.6 TP4", gqa(92, 8, 128), {"tp_size": 4}, 94208),
    ("Qwen3-235B TP4", gqa(94, 4, 128), {"tp_size": 4}, 48128),
    ("Qwen3-235B TP8: one head a rank", gqa(94, 4, 128), {"tp_size": 8}, 48128),
    ("Qwen3-32B TP1", gqa(64, 8, 128), {}, 262144),
    ("Qwen3-32B TP8", gqa(64, 8, 128), {"tp_size": 8}, 32768),
    ("Llama-3.1-405B TP8", gqa(126, 8, 128), {"tp_size": 8}, 64512),
    ("MiniMax-M2 TP8", gqa(62, 8, 128), {"tp_size": 8}, 31744),
    (
        "DP attention: each group splits its own heads",
        gqa(64, 8, 128),
        {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True},
        131072,
    ),
    ("replicas change nothing", gqa(64, 8, 128), {"tp_size": 8, "dp_size": 4}, 32768),
]


@pytest.mark.parametrize(
    ("shape", "flags", "cell"), [row[1:] for row in PLAIN], ids=[r[0] for r in PLAIN]
)
@pytest.mark.parametrize("version", ["0.5.2", "0.5.6", "0.5.9", "0.5.13", "0.5.23"])
def test_a_plain_token(shape: Geometry, flags: dict[str, Any], cell: int, version: str) -> None:
    (found,) = device(case(shape, version, after=80.0, **flags))
    assert (found.cell, found.charged) == (cell, cell)


@pytest.mark.parametrize(
    ("version", "charged", "kept"),
    [("0.5.6", 2 * 192, 2 * 192), ("0.5.9", 192 + 128, 2 * 192), ("0.5.11", 192 + 128, 192 + 128)],
)
def test_v_heads_of_their_own_size(version: str, charged: int, kept: int) -> None:
    """Counted by themselves from 0.5.7 on, allocated so from 0.5.11 on."""
    shape = gqa(10, 8, 192, attention=Heads(8, 192, 128))
    (found,) = device(case(shape, version))
    assert (found.charged, found.cell) == (8 * charged * 10 * 2, 8 * kept * 10 * 2)


FP4 = [
    (mla(), "0.5.9", 61 * 576 // 2 + 36 * 61),
    (gqa(32, 8, 128), "0.5.9", 8 * 256 * 32 // 2 + 8 * 128 * 32 * 2 // 16),
]


@pytest.mark.parametrize(("shape", "version", "cell"), FP4)
def test_fp4_halves_and_adds_its_scales(shape: Geometry, version: str, cell: int) -> None:
    (found,) = device(case(shape, version, kv_cache_dtype="fp4_e2m1"))
    assert found.cell == cell


def test_fp4_of_plain_heads_is_refused_from_0_5_16_on() -> None:
    with pytest.raises(NoForecast, match="FP4"):
        device(case(gqa(32, 8, 128), "0.5.16", kv_cache_dtype="fp4_e2m1"))


def test_mxfp8_adds_a_scale_for_32_values() -> None:
    (found,) = device(case(gqa(32, 8, 128), "0.5.23", kv_cache_dtype="mxfp8"))
    assert found.cell == 8 * 256 * 32 + 8 * 256 * 32 // 32
    with pytest.raises(NoForecast, match="mxfp8"):
        device(case(gqa(32, 8, 128), "0.5.15", kv_cache_dtype="mxfp8"))


@pytest.mark.parametrize(("version", "size"), [("0.5.2", 2), ("0.5.3", 1), ("0.5.23", 1)])
def test_a_checkpoint_may_ask_for_fp8(version: str, size: int) -> None:
    """0.5.2 does not read it."""
    (found,) = device(case(gqa(32, 8, 128, kv_fp8=True), version))
    assert found.cell == 8 * 256 * 32 * size


def test_a_checkpoint_that_may_ask_for_fp8_is_refused() -> None:
    with pytest.raises(NoForecast, match="set kv-cache-dtype"):
        device(case(gqa(32, 8, 128, kv_fp8=None)))


# -- DSA ------------------------------------------------------------------------------------------

SPARSE = [  # release, card, flags, charged a layer, kept a layer
    ("0.5.3", "h100", {}, 1152, 1152 + 132),  # the indexer is not counted yet
    ("0.5.3.post1", "h100", {}, 1152 + 132, 1152 + 132),
    ("0.5.9", "h100", {}, 1152 + 132, 1152 + 132),  # bf16
    ("0.5.9", "b200", {}, 576 + 132, 656 + 132),  # FP8 by default on SM 10
    ("0.5.9", "mi355x", {"kv_cache_dtype": "fp8_e4m3"}, 576 + 132, 656 + 132),
    ("0.5.9", "b200", {"nsa_decode_backend": "trtllm"}, 576 + 132, 576 + 132),
    ("0.5.10", "b200", {}, 576 + 132, 576 + 132),  # trtllm by default
    ("0.5.10", "h100", {"kv_cache_dtype": "fp8_e4m3"}, 576 + 132, 656 + 132),
    ("0.5.10", "mi355x", {"kv_cache_dtype": "fp8_e4m3"}, 576 + 132, 576 + 132),  # tilelang
    ("0.5.16", "h100", {"kv_cache_dtype": "fp8_e4m3"}, 576 + 132, 656 + 132),
    ("0.5.17", "h100", {"kv_cache_dtype": "fp8_e4m3"}, 656 + 132, 656 + 132),  # counted right
    ("0.5.17", "rtxpro", {}, 656 + 132, 656 + 132),  # GLM on SM 12 has a backend of its own
    ("0.5.16", "rtxpro", {}, 576 + 132, 576 + 132),
    ("0.5.23", "b200", {}, 576 + 132, 576 + 132),
]


@pytest.mark.parametrize(("version", "card", "flags", "charged", "kept"), SPARSE)
def test_a_sparse_token(
    version: str, card: str, flags: dict[str, Any], charged: int, kept: int
) -> None:
    (found,) = device(case(dsa(), version, card=card, after=60.0, tp_size=8, **flags))
    assert (found.charged, found.cell) == (78 * charged, 78 * kept)
    assert [pool.name for pool in found.pools] == ["kv", "indexer"]


def test_glm_5_tokens_by_the_small_cell_and_memory_by_the_large_one() -> None:
    """GLM-5-FP8 on MI355X, 0.5.9: 3,262,823 tokens logged, 186.77 GiB allocated."""
    asked = case(
        dsa(),
        card="mi355x",
        before=283.48,
        after=193.90,
        mem_fraction_static=0.908,
        kv_cache_dtype="fp8_e4m3",
        tp_size=8,
    )
    (found,) = device(asked)
    assert found.tokens is not None
    assert abs(found.tokens.value - 3262823) <= 3262823 * 0.002
    size = sum(pool.bytes.value for pool in found.pools)
    assert size / (1 << 30) == pytest.approx(186.77, rel=0.002)


@pytest.mark.parametrize(
    ("version", "flags", "layers"),
    [
        ("0.5.17", {}, 78),
        ("0.5.18", {}, 21),
        ("0.5.18", {"enable_hierarchical_cache": True}, 78),
        ("0.5.20", {"enable_hierarchical_cache": True}, 21),
    ],
)
def test_layers_that_share_a_choice_keep_no_keys(
    version: str, flags: dict[str, Any], layers: int
) -> None:
    shape = dsa()
    shape = dsa(indexer=type(shape.indexer)(128, tuple(range(21))))  # type: ignore[misc]
    (found,) = device(case(shape, version, card="h100", after=60.0, **flags))
    (indexer,) = (pool for pool in found.pools if pool.name == "indexer")
    assert indexer.bytes_per_row == 132 * layers


def test_the_first_release_with_dsa_sets_the_fraction_by_itself() -> None:
    shape = dsa(61, "DeepseekV32ForCausalLM")
    (found,) = device(case(shape, "0.5.3", card="h200", before=137, after=60, tp_size=8))
    assert found.fraction == 0.8


# -- drafts ---------------------------------------------------------------------------------------

COUNTED = [  # release, target, layers counted, charged
    ("0.5.13", mla(), 1, 70272),
    ("0.5.14", mla(), 1, 71424),
    ("0.5.22", mla(), 1, 71424),
    ("0.5.14", gqa(32, 8, 128), 1, 131072 + 4096),
    ("0.5.14", gqa(30, 8, 128), 7, int(122880 * (1 + 7 / 30))),
    ("0.5.23", gqa(30, 8, 128), 7, 122880 + int(122880 * 7 / 30)),
    ("0.5.17", dsa(), 1, int(78 * 1284 * (1 + 1 / 78))),
    ("0.5.18", dsa(), 1, 78 * 1284 + 1152 + 132),
]


@pytest.mark.parametrize(("version", "shape", "layers", "charged"), COUNTED)
def test_a_draft_is_counted_from_0_5_14_on(
    version: str, shape: Geometry, layers: int, charged: int
) -> None:
    draft = mla(1, counted=layers) if isinstance(shape.attention, type(mla().attention)) else None
    draft = draft or gqa(1, 8, 128, counted=layers)
    (found,) = device(case(shape, version, card="h100", after=60.0, draft=draft, **EAGLE))
    assert found.charged == charged
    assert found.pools[-1].name == "draft"


def test_a_draft_that_is_not_counted_has_its_pool_all_the_same() -> None:
    (found,) = device(case(mla(), "0.5.23", draft=gqa(1, 8, 128, counted=0), **EAGLE))
    assert found.charged == 70272
    assert [(pool.name, pool.bytes_per_row) for pool in found.pools] == [
        ("kv", 70272),
        ("draft", 4096),
    ]


@pytest.mark.parametrize(("version", "more"), [("0.5.6", 48 * (3 + 4) + 100), ("0.5.7", 0)])
def test_drafts_got_more_tokens_than_memory_up_to_0_5_6(version: str, more: int) -> None:
    (plain,) = device(case(mla(), version, exact=True))
    (found,) = device(case(mla(), version, exact=True, draft=mla(1), **EAGLE))
    assert found.tokens is not None and plain.tokens is not None
    assert found.tokens.value == plain.tokens.value + more


def test_an_unknown_draft_is_refused() -> None:
    with pytest.raises(NoForecast, match=r"draft model's config\.json"):
        device(case(mla(), "0.5.23", **EAGLE))
