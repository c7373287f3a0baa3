"""Drafts: their own geometry, and how many of their layers a release counts for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.forecast.shape import draft_geometry, geometry
from opsctl.forecast.values import Heads, Latent, NoForecast

EAGLE3 = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
KIMI = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 0,
}
QWEN35 = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_value_heads": 48,
    },
}


def target(config: Any, version: str) -> Any:
    return geometry(json.dumps(config), None, version)


def draft(config: Any, of: Any, version: str, algorithm: str = "EAGLE3") -> Any:
    text = json.dumps(config) if config else None
    return draft_geometry(text, None, target(of, version), algorithm, version)


def test_a_draft_in_its_own_folder_has_its_own_heads() -> None:
    found = draft(EAGLE3, KIMI, "0.5.14")
    assert (found.layers, found.attention, found.counted) == (1, Heads(8, 128, 128), 1)
    assert draft(EAGLE3, KIMI, "0.5.13").counted == 0


def test_a_file_that_says_no_mtp_layers_is_built_but_not_counted() -> None:
    said = {**EAGLE3, "num_nextn_predict_layers": 0}
    found = draft(said, KIMI, "0.5.14")
    assert (found.layers, found.counted) == (1, 0)
    with pytest.raises(NoForecast, match="without layers"):
        draft(said, KIMI, "0.5.12")


@pytest.mark.parametrize(
    ("named", "version", "counted"),
    [
        (True, "0.5.14", 64),  # the target's layers: its text part says nothing of MTP
        (True, "0.5.17", 64),
        (True, "0.5.18", 1),
        (False, "0.5.17", 0),  # no path, nothing is counted
        (False, "0.5.23", 0),
    ],
)
def test_layers_that_are_counted_for_qwen35(named: bool, version: str, counted: int) -> None:
    found = draft(QWEN35 if named else None, QWEN35, version, "NEXTN")
    assert (found.layers, found.full, found.state) == (1, (0,), None)
    assert found.counted == counted


def test_a_latent_draft() -> None:
    config = {**KIMI, "architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1}
    found = draft(config, KIMI, "0.5.14")
    assert found.attention == Latent(512, 64) and found.layers == 1


@pytest.mark.parametrize(
    ("config", "algorithm", "words"),
    [
        (EAGLE3, "SOMETHING", "SOMETHING"),
        (None, "EAGLE", "names no num_nextn_predict_layers"),
        ({**EAGLE3, "architectures": ["LlamaForCausalLM"]}, "EAGLE", "LlamaForCausalLM"),
    ],
)
def test_refusals(config: Any, algorithm: str, words: str) -> None:
    with pytest.raises(NoForecast, match=words):
        draft(config, KIMI, "0.5.14", algorithm)


def test_standalone_is_a_model_like_any_other() -> None:
    config = {**EAGLE3, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16}
    found = draft(config, KIMI, "0.5.14", "STANDALONE")
    assert (found.layers, found.counted) == (16, 16)


def test_the_mtp_draft_of_glm_flash_had_plain_heads_once() -> None:
    flash = {**KIMI, "architectures": ["Glm4MoeLiteForCausalLM"], "num_nextn_predict_layers": 1}
    assert draft(None, flash, "0.5.13", "NEXTN").attention == Latent(512, 64)
    with pytest.raises(NoForecast, match="plain heads"):
        draft(None, flash, "0.5.12", "NEXTN")


def test_window_drafts() -> None:
    mimo = {
        "architectures": ["MiMoV2FlashForCausalLM"],
        "num_hidden_layers": 2,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 192,
        "v_head_dim": 128,
        "swa_num_key_value_heads": 8,
        "swa_v_head_dim": 128,
        "hybrid_layer_pattern": [0, 1],
        "sliding_window": 128,
    }
    found = draft(None, mimo, "0.5.9", "EAGLE")
    assert (found.layers, found.full, found.window) == (1, (), (0,))
    assert found.window_attention == Heads(8, 192, 128)
    with pytest.raises(NoForecast, match="swa_v_head_dim"):
        target({**mimo, "swa_v_head_dim": None}, "0.5.9")
