"""config.json texts, cut down to the fields that matter, and what is refused by name."""

import json

import pytest

from opsctl.forecast.geometry import Geometry, NoForecast, geometry, layers_of_draft

KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "num_nextn_predict_layers": 0,
        "hidden_size": 7168,
        "dtype": "bfloat16",
        "quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": None},
    },
    "vision_config": {"hidden_size": 1152},
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}


def of(config: dict, **changed: object) -> Geometry:
    return geometry(json.dumps({**config, **changed}))


def test_nested_mla() -> None:
    found = of(KIMI)
    assert (found.kind, found.layers, found.latent) == ("mla", 61, 576)
    assert found.element == 2 and found.kv_fp8 is False and found.multimodal


def test_gqa_with_a_derived_head() -> None:
    found = of(LLAMA)
    assert (found.kv_heads, found.head_dim, found.v_head_dim) == (8, 128, 128)


def test_a_head_dim_of_its_own_and_no_kv_heads() -> None:
    found = of(LLAMA, head_dim=64, v_head_dim=32, num_key_value_heads=None)
    assert (found.kv_heads, found.head_dim, found.v_head_dim) == (32, 64, 32)


@pytest.mark.parametrize(
    "changed, named",
    [
        ({"architectures": ["DeepseekV32ForCausalLM"]}, "DSA"),
        ({"architectures": ["DeepseekV3ForCausalLM"], "index_topk": 2048}, "DSA"),
        ({"architectures": ["GptOssForCausalLM"]}, "sliding"),
        ({"sliding_window": 4096}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"layer_types": ["linear_attention"]}, "linear_attention"),
        ({"hybrid_override_pattern": "M-M*"}, "Mamba"),
        ({"full_attention_interval": 4}, "Mamba"),
        ({"attention_chunk_size": 8192}, "SWA"),
        ({"num_kv_shared_layers": 10}, "share"),
        ({"architectures": ["NewForCausalLM"], "kv_lora_rank": 512}, "kv_lora_rank"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_key_value_heads": [8, 4]}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"architectures": []}, "architecture"),
        ({"torch_dtype": "int8"}, "int8"),
    ],
)
def test_other_kinds_are_refused_by_name(changed: dict, named: str) -> None:
    with pytest.raises(NoForecast, match=named):
        of(LLAMA, **changed)


@pytest.mark.parametrize("changed", [{"sliding_window": None}, {"use_sliding_window": False}])
def test_a_window_that_is_off_is_no_window(changed: dict) -> None:
    assert of(LLAMA, **{"sliding_window": 4096, **changed}).kind == "mha"


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_no_config_is_refused(text: str) -> None:
    with pytest.raises(NoForecast):
        geometry(text)


@pytest.mark.parametrize(
    "quantization, fp8",
    [
        (None, False),
        ({"quant_method": "fp8"}, False),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, True),
        ({"quant_method": "modelopt_fp4"}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}, None),
    ],
)
def test_what_auto_means_for_the_kv_dtype(quantization: object, fp8: bool | None) -> None:
    assert of(LLAMA, quantization_config=quantization).kv_fp8 is fp8


@pytest.mark.parametrize(
    "text, fp8",
    [
        ('{"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}', True),
        ('{"quantization": {"quant_algo": "NVFP4"}}', False),
        ("{}", None),
        ("{", None),
    ],
)
def test_modelopt_tells_in_a_file_of_its_own(text: str, fp8: bool | None) -> None:
    assert geometry(json.dumps(LLAMA), text).kv_fp8 is fp8


@pytest.mark.parametrize(
    "config, layers",
    [
        ({"num_hidden_layers": 1}, 1),
        ({"num_hidden_layers": 61, "num_nextn_predict_layers": 1}, 1),
        ({"text_config": {"num_hidden_layers": 2}}, 2),
    ],
)
def test_layers_of_a_draft(config: dict, layers: int) -> None:
    assert layers_of_draft(json.dumps(config)) == layers


@pytest.mark.parametrize("text", ["{}", "[]", "x"])
def test_a_draft_that_does_not_tell(text: str) -> None:
    with pytest.raises(NoForecast, match="draft"):
        layers_of_draft(text)
