"""config.json → the geometry of a model's KV cache, or a refusal that names what is missing.

Sources: sglang/srt/configs/model_config.py of the released packages 0.5.9 and 0.5.23
(`_derive_model_shapes`, `get_total_num_kv_heads`, `is_hybrid_swa_model`, `is_deepseek_nsa`).
Only plain MHA/GQA and MLA are computed. A wrong number is worse than none: all else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class NoForecast(Exception):
    """There is no expectation, and the text says why, for people."""


@dataclass(frozen=True)
class Geometry:
    """What one token takes in the KV cache of one layer, before any split over ranks.

    MLA: `latent` elements a layer (kv_lora_rank + qk_rope_head_dim), the same on every rank.
    MHA/GQA: `kv_heads` heads of `head_dim` (K) and `v_head_dim` (V) elements, split over ranks.
    """

    kind: str  # "mla" or "mha"
    layers: int
    latent: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    element: int = 2  # bytes of the model's own dtype
    kv_fp8: bool | None = False  # the checkpoint asks for an FP8 KV cache; None: cannot be told
    multimodal: bool = False


# Architectures that both versions run with MLA and nothing on top of it.
MLA = {
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV3ForCausalLMNextN",
    "Glm4MoeLiteForCausalLM",
    "MistralLarge3ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
}
_DSA = {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"}
_SWA = {
    "GptOssForCausalLM",
    "Llama4ForConditionalGeneration",
    "MiMoV2FlashForCausalLM",
    "Step3p5ForCausalLM",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
}
# config keys → what they mean: the model keeps more, or less, than plain KV in every layer.
_SPECIAL_KEYS = {
    "index_topk": "a DSA indexer",
    "attention_chunk_size": "chunked (SWA) attention",
    "hybrid_layer_pattern": "sliding-window (SWA) layers",
    "full_attention_interval": "linear-attention (Mamba-like) layers",
    "linear_num_value_heads": "linear-attention (Mamba-like) layers",
    "linear_attn_config": "linear-attention (Mamba-like) layers",
    "hybrid_override_pattern": "Mamba layers",
    "mamba_d_state": "Mamba layers",
    "mamba_d_ssm": "Mamba layers",
    "ssm_cfg": "Mamba layers",
    "attn_layer_period": "Mamba layers",
    "block_configs": "layers of different shapes",
    "cross_attention_layers": "cross-attention layers",
    "num_kv_shared_layers": "layers that share their KV",
    "multi_query": "multi-query attention of its own kind",
    "attn_config": "an attention configuration of its own kind",
    "new_decoder_architecture": "an attention configuration of its own kind",
}
_NESTED = ("text_config", "llm_config", "language_config")
_KV_HEADS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_ELEMENT = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 2, "float": 2}


def geometry(config_text: str, quant_text: str | None = None) -> Geometry:
    """The geometry that a config.json (and ModelOpt's hf_quant_config.json) describes.

    Raises NoForecast.
    """
    try:
        config = json.loads(config_text)
    except ValueError as problem:
        raise NoForecast(f"config.json is no JSON: {problem}") from None
    if not isinstance(config, dict):
        raise NoForecast("config.json is no JSON object")
    text = text_config(config)
    architecture = _architecture(config, text)
    _refuse_special(architecture, config, text)
    layers = _number(text, "num_hidden_layers", architecture)
    common: dict[str, Any] = {
        "layers": layers,
        "element": _element(config, text),
        "kv_fp8": _kv_fp8(config, text, quant_text),
        "multimodal": text is not config,
    }
    if architecture in MLA:
        latent = _number(text, "kv_lora_rank", architecture)
        latent += _number(text, "qk_rope_head_dim", architecture)
        return Geometry("mla", latent=latent, **common)
    if text.get("kv_lora_rank") is not None:
        raise NoForecast(f"{architecture} has kv_lora_rank, but is not known to run with MLA")
    return _grouped(text, architecture, common)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model (hf_transformers_utils.get_hf_text_config)."""
    for name in _NESTED:
        if isinstance(config.get(name), dict):
            nested: Mapping[str, Any] = config[name]
            return nested
    thinker = config.get("thinker_config")
    if isinstance(thinker, dict) and isinstance(thinker.get("text_config"), dict):
        inner: Mapping[str, Any] = thinker["text_config"]
        return inner
    return config


def layers_of_draft(config_text: str) -> int:
    """KV layers of a draft model: its MTP layers if it names some, else all its layers.

    Source: 0.5.23 model_runner_components/spec_aux_hidden_state.py.
    """
    try:
        config = json.loads(config_text)
        text = text_config(config)
        layers = text.get("num_nextn_predict_layers") or text["num_hidden_layers"]
        return int(layers)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NoForecast("the draft model's config.json does not tell its layers") from None


def _architecture(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    names = config.get("architectures") or text.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise NoForecast("config.json names no architecture")
    return names[0]


def _refuse_special(architecture: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    if architecture in _DSA:
        raise NoForecast(f"{architecture} has a DSA indexer, which is not forecast yet")
    if architecture in _SWA:
        raise NoForecast(f"{architecture} has sliding-window layers, which are not forecast yet")
    for key, meaning in _SPECIAL_KEYS.items():
        if text.get(key) not in (None, False, 0, []) or config.get(key) not in (None, False, 0, []):
            raise NoForecast(f"{architecture} has {meaning} ({key}), which is not forecast yet")
    kinds = set(text.get("layer_types") or []) - {"full_attention"}
    if kinds:
        raise NoForecast(
            f"{architecture} has layers of the kind {', '.join(sorted(map(str, kinds)))}, "
            "which are not forecast yet"
        )
    if text.get("sliding_window") and text.get("use_sliding_window") is not False:
        raise NoForecast(f"{architecture} has a sliding window (SWA), which is not forecast yet")


def _grouped(text: Mapping[str, Any], architecture: str, common: dict[str, Any]) -> Geometry:
    heads = _number(text, "num_attention_heads", architecture)
    kv_heads = heads
    for key in _KV_HEADS:
        if text.get(key) is not None:
            kv_heads = _number(text, key, architecture)
            break
    if text.get("head_dim") is not None:
        head_dim = _number(text, "head_dim", architecture)
    else:
        head_dim = _number(text, "hidden_size", architecture) // heads
    v_head_dim = head_dim
    if text.get("v_head_dim") is not None:
        v_head_dim = _number(text, "v_head_dim", architecture)
    return Geometry("mha", kv_heads=kv_heads, head_dim=head_dim, v_head_dim=v_head_dim, **common)


def _number(text: Mapping[str, Any], key: str, architecture: str) -> int:
    value = text.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise NoForecast(f"config.json of {architecture} lacks {key} as one whole number")
    return value


def _element(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    """Bytes of an element under dtype "auto": float32 checkpoints run in half precision too
    (model_config.py, `_get_and_verify_dtype`)."""
    for place in (text, config):
        name = place.get("torch_dtype") or place.get("dtype")
        if isinstance(name, str):
            size = _ELEMENT.get(name.removeprefix("torch."))
            if size is None:
                raise NoForecast(f"config.json names the dtype {name}, which is not known here")
            return size
    return 2  # Transformers' default is float32, hence half precision


def _kv_fp8(
    config: Mapping[str, Any], text: Mapping[str, Any], quant_text: str | None
) -> bool | None:
    """Whether kv-cache-dtype "auto" becomes FP8 (`configure_kv_cache_dtype`). None where it
    cannot be told: ModelOpt writes the algorithm into a file of its own."""
    if quant_text:
        try:
            algorithm = json.loads(quant_text)["quantization"].get("kv_cache_quant_algo")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return isinstance(algorithm, str) and algorithm.upper() == "FP8"
    quantization = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(quantization, dict):
        return False
    algorithm = quantization.get("kv_cache_quant_algo")
    if isinstance(algorithm, str):
        return algorithm.upper() == "FP8"
    if str(quantization.get("quant_method", "")).startswith("modelopt"):
        return None
    return None if quantization.get("kv_cache_scheme") else False
