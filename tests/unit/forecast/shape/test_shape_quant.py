"""Whether dtype "auto" of the KV cache becomes FP8, by quantisation and release."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.forecast.shape import geometry

PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
EIGHT = {"type": "float", "num_bits": 8}
FP8, NVFP4 = {"quant_algo": "FP8"}, {"quant_algo": "NVFP4"}
STATIC = {**EIGHT, "strategy": "tensor", "symmetric": True, "dynamic": False}


def asked(quant: Any, version: str, file: Any = None) -> bool | None:
    config = {**PLAIN, "quantization_config": quant} if quant else PLAIN
    return geometry(json.dumps(config), json.dumps(file) if file else None, version).kv_fp8


@pytest.mark.parametrize(
    ("quant", "version", "expected"),
    [
        (None, "0.5.9", False),
        # ModelOpt: by the scheme in config.json; the runner of 0.5.2 does not ask
        ({"quant_method": "modelopt", **FP8, "kv_cache_scheme": EIGHT}, "0.5.9", True),
        ({"quant_method": "modelopt", **NVFP4, "kv_cache_scheme": EIGHT}, "0.5.2", False),
        ({"quant_method": "modelopt", **NVFP4, "kv_cache_scheme": "FP8"}, "0.5.9", True),
        ({"quant_algo": "NVFP4"}, "0.5.9", False),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "0.5.9", None),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "0.5.16", True),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "0.5.9", None),
        # plain FP8: from 0.5.18 on its class knows kv_cache_quant_algo
        ({"quant_method": "fp8"}, "0.5.23", False),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, "0.5.17", False),
        ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, "0.5.18", True),
        # compressed-tensors: from 0.5.19 on, and one scheme only
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": STATIC}, "0.5.18", False),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": STATIC}, "0.5.19", True),
        (
            {"quant_method": "compressed-tensors", "kv_cache_scheme": {**STATIC, "dynamic": True}},
            "0.5.19",
            False,
        ),
        ({"quant_method": "compressed-tensors"}, "0.5.23", False),
        ({"quant_method": "awq"}, "0.5.9", False),
        ({"quant_method": "something-new"}, "0.5.9", None),
    ],
)  # fmt: skip
def test_by_quantisation_and_release(quant: Any, version: str, expected: bool | None) -> None:
    assert asked(quant, version) is expected


def test_a_file_of_its_own_counts_where_config_json_says_nothing() -> None:
    file = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    assert asked(None, "0.5.9", file) is True
    assert asked({"quant_algo": "NVFP4"}, "0.5.9", file) is False
    assert asked({"quant_algo": "MIXED_PRECISION"}, "0.5.9", file) is True
