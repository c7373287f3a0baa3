"""Bytes per token, pages and tokens against figures of public logs."""

import pytest

from opsctl.forecast import kv
from opsctl.forecast.geometry import Geometry, NoForecast
from opsctl.onhost.expect import GiB, host_pool_tokens

KIMI = Geometry("mla", layers=61, latent=576, multimodal=True)


def gqa(layers: int, heads: int, head: int) -> Geometry:
    return Geometry("mha", layers=layers, kv_heads=heads, head_dim=head, v_head_dim=head)


# model, flags, version, logged tokens, logged GiB of the pool, bytes per token and rank.
# From public logs: the pool's size is tokens × cell, to the rounding of the log line.
POOLS = [
    ("Kimi-K2.5, reference", KIMI, {"tp-size": 8}, "0.5.9", 159277, 10.42, 70272),
    ("Kimi-K2.5, MI355X", KIMI, {"tp-size": 8}, "0.5.9", 2454421, 160.63, 70272),
    ("Qwen3-235B TP4", gqa(94, 4, 128), {"tp-size": 4}, "0.5.9", 367404, 16.46, 48128),
    ("Llama-3.1-8B", gqa(32, 8, 128), {}, "0.5.9", 442750, 54.04, 131072),
    ("Qwen3-30B-A3B", gqa(48, 4, 128), {}, "0.5.18", 392920, 35.98, 98304),
]


@pytest.mark.parametrize(
    "shape, flags, version, tokens, size, cell", [row[1:] for row in POOLS], ids=lambda value: None
)
def test_cells_of_public_logs(
    shape: Geometry, flags: dict, version: str, tokens: int, size: float, cell: int
) -> None:
    assert kv.cell(shape, flags, version) == cell
    # K and V are rounded apart where there are two.
    assert abs(tokens * cell / GiB - size) <= (0.005 if shape.kind == "mla" else 0.01) + 1e-3


@pytest.mark.parametrize(
    "shape, flags, cell",
    [
        (KIMI, {"tp-size": 1}, 70272),  # MLA is not split
        (KIMI, {"kv-cache-dtype": "fp8_e4m3"}, 35136),
        (gqa(94, 4, 128), {"tp-size": 8}, 48128),  # heads are replicated, not cut
        (gqa(64, 8, 128), {"tp-size": 8}, 32768),
        (gqa(64, 8, 128), {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True}, 262144),
        (gqa(64, 8, 128), {"tp-size": 8, "attn-dp-size": 4}, 131072),
        (gqa(64, 8, 128), {"tp-size": 8, "dp-size": 2}, 32768),  # replicas do not split
        (gqa(64, 8, 128), {"pp-size": 2}, 131072),
        (gqa(64, 8, 128), {"kv-cache-dtype": "bf16"}, 262144),
        (gqa(64, 8, 128), {"dtype": "float32"}, 524288),
    ],
)
def test_flags_that_shape_the_cell(shape: Geometry, flags: dict, cell: int) -> None:
    assert kv.cell(shape, flags, "0.5.9") == cell


@pytest.mark.parametrize(
    "flags, named",
    [({"pp-size": 2}, "61 layers"), ({"kv-cache-dtype": "fp4_e2m1"}, "fp4_e2m1")],
)
def test_cells_that_are_not_known(flags: dict, named: str) -> None:
    with pytest.raises(NoForecast, match=named):
        kv.cell(KIMI, flags, "0.5.9")


def test_a_checkpoint_that_does_not_tell_its_kv_dtype() -> None:
    shape = Geometry("mla", layers=61, latent=576, kv_fp8=None)
    with pytest.raises(NoForecast, match="set kv-cache-dtype"):
        kv.cell(shape, {}, "0.5.9")
    assert kv.cell(shape, {"kv-cache-dtype": "fp8_e4m3"}, "0.5.9") == 35136


@pytest.mark.parametrize(
    "version, cell",
    [("0.5.9", 70272), ("0.5.13", 70272), ("0.5.14", 71424), ("0.5.23", 71424)],
)
def test_the_drafts_kv_is_charged_from_0_5_14_on(version: str, cell: int) -> None:
    flags = {"speculative-algorithm": "EAGLE3"}
    assert kv.charged(70272, KIMI, flags, version, 1) == cell


def test_a_draft_of_unknown_layers_is_refused_where_it_counts() -> None:
    flags = {"speculative-algorithm": "EAGLE3"}
    assert kv.charged(70272, KIMI, flags, "0.5.9", None) == 70272
    with pytest.raises(NoForecast, match="draft"):
        kv.charged(70272, KIMI, flags, "0.5.23", None)


RTX = ["NVIDIA RTX PRO 6000 Blackwell Server Edition"]


@pytest.mark.parametrize(
    "flags, cards, page",
    [
        ({}, RTX, 1),
        ({"page-size": 64}, RTX, 64),
        ({}, ["NVIDIA H100 80GB HBM3"], 1),
        ({"attention-backend": "flashmla"}, RTX, 64),
        ({"attention-backend": "cutlass_mla", "page-size": 1}, RTX, 128),
        ({"attention-backend": "trtllm_mla"}, ["NVIDIA B200"], 64),
        ({"attention-backend": "trtllm_mla", "page-size": 32}, ["NVIDIA B200"], 32),
        ({"decode-attention-backend": "flashmla"}, RTX, 64),
        ({"attention-backend": "triton"}, ["NVIDIA B200"], 1),
        ({"device": "cpu"}, [], 1),
        ({"page-size": 64}, ["NVIDIA B200"], 64),
    ],
)
def test_pages(flags: dict, cards: list[str], page: int) -> None:
    assert kv.page(KIMI, flags, cards) == page


@pytest.mark.parametrize("flags, cards", [({}, ["NVIDIA B200"]), ({}, []), ({"page-size": 1}, [])])
def test_a_page_that_is_not_sure_is_refused(flags: dict, cards: list[str]) -> None:
    with pytest.raises(NoForecast, match="page-size"):
        kv.page(KIMI, flags, cards)


def test_tokens_from_free_memory_have_the_band_of_their_rounding() -> None:
    """(1 − 0.88) × 94.05 GiB are kept back; 159,277 lies in the band of two rounded figures."""
    found = kv.from_free_memory(94.05 * GiB, 21.71 * GiB, 0.88, 70272)
    assert found.value == 159276  # 94.05 is rounded: the last digit is not in it
    assert found.least is not None and found.most is not None
    assert found.least <= 159277 <= found.most
    assert found.most - found.least <= 2 * 0.005 * 1.12 * GiB / 70272 + 2


def test_public_start_of_another_card() -> None:
    """MI355X: fraction 0.826, 283.48 GiB free before, 209.96 after: 2,454,421 tokens logged."""
    found = kv.from_free_memory(283.48 * GiB, 209.96 * GiB, 0.908 * 0.90974, 70272)
    assert found.value is not None and abs(found.value - 2454421) < 2000


def test_weights_that_leave_nothing() -> None:
    with pytest.raises(NoForecast, match="start would fail"):
        kv.from_free_memory(94 * GiB, 11 * GiB, 0.88, 70272)


@pytest.mark.parametrize(
    "flags, page, value, most",
    [
        ({}, 1, 1000, 1010),
        ({}, 64, 960, 960),
        ({"max-total-tokens": 500}, 1, 500, 500),
        ({"max-total-tokens": 500}, 64, 448, 448),
        ({"max-total-tokens": 5000}, 1, 1000, 1010),
    ],
)
def test_caps_and_pages(flags: dict, page: int, value: int, most: int) -> None:
    found = kv.capped(kv.Tokens(1000, 990, 1010, "computed", ""), flags, page)
    assert (found.value, found.most) == (value, most)


def test_a_cap_alone_says_what_is_the_most() -> None:
    found = kv.capped(kv.Tokens(None, None, None, "estimated", ""), {"max-total-tokens": 4096}, 1)
    assert (found.value, found.least, found.most) == (4096, None, 4096)


# version, device tokens, ratio, size (GB), page, bytes per token → host tokens
HOSTS = [
    ("0.5.9", 159277, 4.0, None, 1, 70272, 637109),
    ("0.5.9", 159277, 2.0, None, 1, 70272, 318555),
    ("0.5.17", 100000, None, 100, 64, 131072, 762944),  # Qwen3-32B fp8, public log
    ("0.5.4", 1000, 2.0, None, 64, 1, 1984),  # floored up to 0.5.4
    ("0.5.5.post3", 1000, 2.0, None, 64, 1, 2048),
    ("0.5.5.post3", 1024, 2.0, None, 64, 1, 2112),  # a page more even where it divides
    ("0.5.15", 1547424, 2.0, None, 1, 114688, 3094849),  # Qwen3-1.7B, public log
]


@pytest.mark.parametrize("version, device, ratio, size, page, cell, tokens", HOSTS)
def test_host_pool_tokens(
    version: str,
    device: int,
    ratio: float | None,
    size: float | None,
    page: int,
    cell: int,
    tokens: int,
) -> None:
    found = host_pool_tokens(
        device, bytes_per_token=cell, ratio=ratio, size=size, page=page, version=version
    )
    assert found == tokens


@pytest.mark.parametrize(
    "tokens, cell, size",
    [
        (637109, 70272, 44.77),
        (318555, 70272, 22.39),
        (762944, 131072, 100.0),
        (3094849, 114688, 354.94),
    ],
)
def test_host_pools_are_printed_in_decimal_gb(tokens: int, cell: int, size: float) -> None:
    assert abs(tokens * cell / 1e9 - size) <= 0.005


@pytest.mark.parametrize("ratio, size", [(None, None), (0, None), (-1.0, None), (None, 0)])
def test_a_pool_without_a_rule_is_an_error(ratio: float | None, size: float | None) -> None:
    with pytest.raises(ValueError, match="ratio or a size"):
        host_pool_tokens(1, bytes_per_token=1, ratio=ratio, size=size, version="0.5.9")
