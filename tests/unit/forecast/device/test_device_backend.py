"""Which attention backend is chosen, and what follows from it: each row was judged by the engine's
own resolution (tests/engine/test_real_arguments.py draws such arguments anew)."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.engine.rules import shared
from opsctl.forecast.device.backend import attention, base
from opsctl.forecast.device.fraction import default_fraction
from opsctl.forecast.device.page import page
from opsctl.forecast.device.recurrent import no_radix
from opsctl.forecast.device.settings import settings
from opsctl.forecast.values import Geometry
from tests.unit.forecast.device.cases import case, dsa, gqa, mla, qwen35

LLAMA = gqa(32, 8, 128)
LLAMA4 = gqa(48, 8, 128, architecture="Llama4ForConditionalGeneration", multimodal=True)
KIMI = mla(architecture="KimiK25ForConditionalGeneration", q_heads=64)
DETERMINISTIC = {"enable_deterministic_inference": True}
NEMOTRON = gqa(56, 8, 128, architecture="NemotronHForCausalLM")
TREE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 8,
}

CHOSEN: list[tuple[Geometry, str, str, dict[str, Any], str]] = [
    (LLAMA4, "0.5.9", "4090", {}, "triton"),
    (LLAMA4, "0.5.9", "h200", TREE, "fa3"),
    (LLAMA4, "0.5.23", "rtxpro", {}, "triton"),
    (LLAMA4, "0.5.23", "b200", {}, "trtllm_mha"),
    (LLAMA4, "0.5.23", "mi355x", {}, "aiter"),
    (LLAMA4, "0.5.4", "4090", {}, "flashinfer"),  # 0.5.6 is the first to choose for it
    (KIMI, "0.5.9", "b200", {}, "trtllm_mla"),
    (KIMI, "0.5.9", "b200", {"prefill_attention_backend": "triton"}, "flashinfer"),
    (dsa(), "0.5.9", "h200", {}, "dsa"),
    (dsa(), "0.5.9", "h200", {"decode_attention_backend": "flashmla"}, "fa3"),
    (dsa(), "0.5.9", "l40s", {"decode_attention_backend": "flashmla"}, "triton"),
    (LLAMA, "0.5.23", "l40s", DETERMINISTIC, "fa3"),
    (LLAMA, "0.5.23", "rtxpro", DETERMINISTIC, "flashinfer"),
    (LLAMA, "0.5.23", "mi355x", DETERMINISTIC, "fa3"),
    (LLAMA, "0.5.9", "l40s", DETERMINISTIC, "flashinfer"),  # it looks when it has chosen
    (mla(), "0.5.23", "b200", {**DETERMINISTIC, "page_size": 64}, "trtllm_mla"),
    (mla(), "0.5.23", "rtxpro", DETERMINISTIC, "triton"),
    (LLAMA, "0.5.23", "h100", {"kv_cache_dtype": "fp8_e5m2"}, "triton"),
    (LLAMA, "0.5.23", "h100", {"kv_cache_dtype": "fp8_e5m2", **TREE}, "flashinfer"),
    (NEMOTRON, "0.5.23", "b200", TREE, "triton"),
    (NEMOTRON, "0.5.23", "b200", {}, "trtllm_mha"),
    (
        LLAMA,
        "0.5.9",
        "l40s",
        {"prefill_attention_backend": "triton", "decode_attention_backend": "triton"},
        "triton",
    ),
]


@pytest.mark.parametrize(("shape", "version", "card", "flags", "expected"), CHOSEN)
def test_the_base(
    shape: Geometry, version: str, card: str, flags: dict[str, Any], expected: str
) -> None:
    made = case(shape, version, card=card, **flags)
    assert base(made, settings(made)) == expected


def test_a_phase_of_its_own_leaves_the_base_as_it_is() -> None:
    """On AMD aiter takes its share of the fraction also where only prefill has another backend."""
    plain = case(LLAMA, "0.5.23", card="mi355x", mem_fraction_static=None)
    other = case(
        LLAMA, "0.5.23", card="mi355x", mem_fraction_static=None, prefill_attention_backend="fa3"
    )
    assert attention(other, settings(other)) == ("fa3", "aiter")
    assert default_fraction(other) == default_fraction(plain) < 0.8


def test_a_model_that_runs_without_its_images_is_no_multimodal_one() -> None:
    """Llama 4 does, unless asked: its prefill is captured, and its tower takes no share."""
    text = case(LLAMA4, "0.5.23", card="h200", mem_fraction_static=None)
    images = case(LLAMA4, "0.5.23", card="h200", mem_fraction_static=None, enable_multimodal=True)
    assert (default_fraction(text), default_fraction(images)) == (0.903, 0.907)


def test_fa4_has_pages_of_128_from_0_5_4_on() -> None:
    flags = {"prefill_attention_backend": "fa4", "decode_attention_backend": "fa3"}
    assert page(case(LLAMA, "0.5.3", card="h100", **flags)) == 1
    assert page(case(LLAMA, "0.5.4", card="h100", **flags)) == 128
    assert page(case(LLAMA, "0.5.10", card="h100", **flags)) == 1


def test_gdn_on_sm_10_without_a_prefix_cache() -> None:
    assert page(case(qwen35(), "0.5.23", card="b200")) == 1
    assert page(case(qwen35(), "0.5.23", card="b200", disable_radix_cache=True)) == 64


def test_gdn_on_sm_10_with_speculation_whose_branches_are_chosen_later() -> None:
    for flags, expected in (({"speculative_algorithm": "NGRAM"}, 1), (TREE, 1)):
        assert page(case(qwen35(), "0.5.23", card="b200", **flags)) == expected


def test_deterministic_inference_with_flashinfer_keeps_no_prefixes() -> None:
    for card, expected in (("rtxpro", True), ("h200", False)):
        made = case(qwen35(), "0.5.23", card=card, **DETERMINISTIC)
        assert no_radix(made, settings(made), None) is expected


@pytest.mark.parametrize(
    ("backend", "wanted", "key", "expected"),
    [
        ("flashmla", 1, (0, 5, 9), 64),
        ("trtllm_mha", 128, (0, 5, 16), 64),
        ("trtllm_mha", 128, (0, 5, 17), 128),
        ("trtllm_mla", 32, (0, 5, 9), 32),
        ("triton", 7, (0, 5, 9), 7),
    ],
)
def test_pages_of_a_backend(backend: str, wanted: int, key: tuple[int, ...], expected: int) -> None:
    assert shared.page(backend, wanted, key) == expected
