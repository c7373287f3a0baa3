"""Geometries of the main families, from config.json fields of public models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.forecast.shape import draft_geometry, geometry, state_elements
from opsctl.forecast.values import Heads, Indexer, Latent, NoForecast, State


def shape(version: str | None = None, **fields: Any) -> Any:
    architecture = fields.pop("architecture")
    return geometry(json.dumps({"architectures": [architecture], **fields}), None, version)


LLAMA = {
    "architecture": "LlamaForCausalLM",
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
DEEPSEEK = {
    "architecture": "DeepseekV3ForCausalLM",
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 1,
}
GPT_OSS = {
    "architecture": "GptOssForCausalLM",
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
QWEN3_NEXT = {
    "architecture": "Qwen3NextForCausalLM",
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}


def test_grouped() -> None:
    found = shape(**LLAMA)
    assert found.attention == Heads(8, 128, 128)
    assert found.full == tuple(range(32)) and not found.window and not found.linear
    assert (found.hidden, found.q_heads, found.vocabulary) == (4096, 32, 128256)
    assert found.context == 131072 and found.element == 2 and found.kv_fp8 is False


def test_latent_and_its_mtp_draft() -> None:
    found = shape(**DEEPSEEK)
    assert found.attention == Latent(512, 64) and found.nextn == 1 and found.indexer is None
    draft = draft_geometry(None, None, found, "EAGLE")
    assert draft.layers == 1 and draft.full == (0,) and draft.attention == Latent(512, 64)
    assert draft.architecture == "DeepseekV3ForCausalLMNextN"


def test_indexer_of_every_layer_and_of_some() -> None:
    sparse = {**DEEPSEEK, "architecture": "DeepseekV32ForCausalLM", "index_topk": 2048}
    sparse["index_head_dim"] = 128
    assert shape(**sparse).indexer == Indexer(128, tuple(range(61)))
    glm = {**sparse, "architecture": "GlmMoeDsaForCausalLM", "index_topk_freq": 4}
    assert shape(**glm).indexer.layers == (0, 1, *range(5, 61, 4))
    assert draft_geometry(None, None, shape(**glm), "NEXTN").indexer.layers == (0,)


def test_window_layers() -> None:
    found = shape(**GPT_OSS)
    assert found.window == tuple(range(0, 36, 2)) and found.full == tuple(range(1, 36, 2))
    assert found.window_attention is None and found.window_tokens == 128


def test_chunked_layers_of_llama4() -> None:
    fields = {**LLAMA, "architecture": "Llama4ForConditionalGeneration", "model_type": "llama4"}
    fields["attention_chunk_size"] = 8192
    found = shape(**fields)
    assert found.full == tuple(range(3, 32, 4)) and found.window_tokens == 8192


def test_recurrent_state() -> None:
    found = shape(**QWEN3_NEXT)
    assert found.full == tuple(range(3, 48, 4)) and len(found.linear) == 36
    assert found.state == State("gdn", (32, 128, 128), ((8192, 3),), 16, 4)
    assert state_elements(found.state, 1) == (32 * 128 * 128, 8192 * 3)
    assert state_elements(found.state, 8) == (4 * 128 * 128, 1024 * 3)
    draft = draft_geometry(None, None, found, "NEXTN")
    assert (draft.layers, draft.full, draft.linear, draft.state) == (1, (0,), (), None)


def test_groups_are_repeated_where_they_do_not_divide() -> None:
    state = State("mamba2", (128, 64, 128), ((128 * 64 + 2 * 8 * 128, 3),), 8)
    assert state_elements(state, 8)[1] == (8192 + 2048) // 8 * 3
    assert state_elements(state, 16)[1] == (8192 + 2 * 16 * 128) // 16 * 3
    with pytest.raises(NoForecast, match="do not divide"):
        state_elements(state, 3)


def test_refusals_name_what_is_missing() -> None:
    with pytest.raises(NoForecast, match=r"0\.5\.8 has no class .* 0\.5\.9"):
        geometry(json.dumps({"architectures": ["KimiK25ForConditionalGeneration"]}), None, "0.5.8")
    with pytest.raises(NoForecast, match="JambaForCausalLM"):
        shape(**{**LLAMA, "architecture": "JambaForCausalLM"})
    with pytest.raises(NoForecast, match="DeepSeek-V4"):
        shape(**{**LLAMA, "architecture": "DeepseekV4ForCausalLM"})
    with pytest.raises(NoForecast, match="lacks hidden_size"):
        shape(**{key: value for key, value in LLAMA.items() if key != "hidden_size"})
