"""Families and formats of checkpoints, from the texts that stand beside their weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.engine.advisories.checkpoint import model
from opsctl.engine.advisories.families import family
from opsctl.engine.advisories.read import entries


@pytest.mark.parametrize(
    ("architecture", "kind", "folder", "expected"),
    [
        ("KimiK25ForConditionalGeneration", "", "", "kimi-k2.5"),
        ("DeepseekV3ForCausalLM", "kimi_k2", "", "kimi-k2"),
        ("DeepseekV3ForCausalLM", "deepseek_v3", "Kimi-K2-Thinking", "kimi-k2"),
        ("DeepseekV3ForCausalLM", "deepseek_v3", "DeepSeek-R1", "deepseek-v3"),
        ("GlmMoeDsaForCausalLM", "", "GLM-5.1-FP8", "glm-5"),
        ("LlamaForCausalLM", "llama", "kimi-k2", None),
    ],
)
def test_families(architecture: str, kind: str, folder: str, expected: str | None) -> None:
    assert family(architecture, kind, folder) == expected


def test_every_family_that_a_condition_names_can_be_found() -> None:
    from opsctl.engine.advisories.families import _BY_ARCHITECTURE

    known = {*_BY_ARCHITECTURE.values(), "kimi-k2", "deepseek-v3"}
    for entry in entries():
        for clause in [c for one in entry.when for c in ([one] if isinstance(one, str) else one)]:
            if clause.startswith(("model.family =", "model.family in")):
                named = clause.removeprefix("model.family ").removeprefix("in").removeprefix("=")
                assert {name.strip() for name in named.split("|")} <= known, entry.id


def _ct(bits: int, kind: str) -> dict[str, Any]:
    group = {"weights": {"num_bits": bits, "type": kind}}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


@pytest.mark.parametrize(
    ("scheme", "apart", "flag", "expected"),
    [
        ({}, {}, "", "none"),
        ({"quant_method": "fp8"}, {}, "", "fp8"),
        (_ct(4, "int"), {}, "", "int4"),
        (_ct(4, "float"), {}, "", "nvfp4"),
        (_ct(2, "int"), {}, "", None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {}, "", "nvfp4"),
        ({}, {"quant_algo": "NVFP4"}, "", "nvfp4"),
        ({"quant_method": "mxfp4"}, {}, "", "mxfp4"),
        ({}, {}, "fp8", "fp8"),
        ({"quant_method": "quark"}, {}, "", None),
    ],
)
def test_formats(
    scheme: dict[str, Any], apart: dict[str, Any], flag: str, expected: str | None
) -> None:
    config = {"architectures": ["X"], "quantization_config": scheme or None}
    said = model(json.dumps(config), json.dumps({"quantization": apart}), flag=flag)
    assert said.get("quant") == expected


def test_scales_of_the_kv_cache() -> None:
    def told(scheme: dict[str, Any], apart: dict[str, Any]) -> Any:
        config = {"architectures": ["X"], "quantization_config": scheme}
        return model(json.dumps(config), json.dumps({"quantization": apart}))["kv_scales"]

    assert told({"quant_method": "fp8"}, {}) is False
    assert told({**_ct(8, "float"), "kv_cache_scheme": {"num_bits": 8}}, {}) is True
    assert told({}, {"kv_cache_quant_algo": "FP8"}) is True


def test_a_nested_configuration() -> None:
    inner = {"model_type": "kimi_k2", "max_position_embeddings": 262144, "quantization_config": {}}
    inner["quantization_config"] = _ct(4, "int")
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": inner}
    assert model(json.dumps(config)) == {
        "architecture": "KimiK25ForConditionalGeneration",
        "family": "kimi-k2.5",
        "quant": "int4",
        "kv_scales": False,
        "context": 262144,
    }


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_configuration_tells_nothing(text: str) -> None:
    assert model(text) == {}
