"""The whole of a checkpoint, put together from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from opsctl.forecast.device.settings import names
from opsctl.forecast.dimensions import experts as ffn
from opsctl.forecast.dimensions.attention import attention, heads, latent
from opsctl.forecast.dimensions.parts import Doubt, Parts
from opsctl.forecast.dimensions.quant import quant
from opsctl.forecast.shape.config import Config, read
from opsctl.forecast.values import Geometry, Heads, Latent, NoForecast

# Architectures whose published sizes were compared: tests/unit/forecast/test_dimensions.py.
_KNOWN: Doubt = (0.985, 1.015)
COMPARED = names(
    """
    DeepseekV32ForCausalLM DeepseekV3ForCausalLM Gemma2ForCausalLM
    Gemma4ForConditionalGeneration Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    GlmMoeDsaForCausalLM GptOssForCausalLM GraniteForCausalLM KimiK25ForConditionalGeneration
    Lfm2ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM MiniMaxM2ForCausalLM
    MistralForCausalLM MixtralForCausalLM NemotronHForCausalLM Olmo2ForCausalLM
    Phi3ForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration
    """
)
# Of any other: a judgement. A feed-forward of two matrices in place of three is the largest
# difference between the classes, about a quarter of a dense model.
_OTHERS: Doubt = (0.7, 1.2)
_TOWER: Doubt = (0.5, 2.0)  # of images and sound: a small part, of many kinds
_TIED = ("gemma",)  # model types whose embedding is the head too, where the file is silent
_UNSAID_DRAFT = {"Qwen3NextForCausalLM"}  # one MTP layer, of which config.json says nothing
# MTP layers that bring an embedding and a head of their own in the files.
_OWN_VOCABULARY = {"DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "Glm4MoeForCausalLM",
                   "Glm4MoeLiteForCausalLM"}  # fmt: skip
_FLOW = ("audio_config", "thinker_config", "talker_config", "sound_config")


@lru_cache(maxsize=64)
def imagined(
    config_text: str, quant_text: str | None, shape: Geometry, version: str
) -> dict[str, Any]:
    """The tensors in the form of `facts`, "doubt" beside each group. Raises NoForecast.

    `shape`: what the same texts describe.
    """
    config = read(config_text, version)
    if any(isinstance(config.top.get(key), dict) for key in _FLOW):
        raise NoForecast("a model with sound: its weights are not estimated")
    sizes = {
        "hidden_size": shape.hidden,
        "vocab_size": shape.vocabulary,
        "num_attention_heads": shape.q_heads,
    }
    if missing := [name for name, size in sizes.items() if not size]:
        raise NoForecast(f"config.json lacks {', '.join(missing)}")
    made = Parts(quant(config, quant_text), _KNOWN if shape.architecture in COMPARED else _OTHERS)
    layers = shape.layers
    attention(made, config, shape)
    ffn.feed_forward(made, config, shape, layers)
    made.plain("model.layers.#.input_layernorm.weight", [2 * shape.hidden], tuple(range(layers)))
    _vocabulary(made, config, shape)
    _tower(made, config, shape)
    _drafts(made, config, shape, layers)
    return made.told()


def eagle(config_text: str, quant_text: str | None, shape: Geometry, version: str) -> Any:
    """Of an EAGLE or EAGLE3 draft in a folder of its own: a decoder layer whose attention takes the
    embedding beside the hidden state, and a matrix that brings the target's states together. It
    may share the target's embedding and head. Raises NoForecast."""
    config = read(config_text, version)
    if not shape.architecture.startswith("LlamaForCausalLMEagle"):
        raise NoForecast(f"weights of the draft {shape.architecture} are not estimated")
    made, span = Parts(quant(config, quant_text), (0.9, 1.1)), tuple(range(shape.layers))
    hidden, kind = shape.hidden, shape.attention
    assert isinstance(kind, Heads)
    third = shape.architecture.endswith("3")
    wide = replace(shape, hidden=2 * hidden) if third else shape
    heads(made, config, wide, kind, span)
    for name, out, into in _three(config.whole("intermediate_size"), hidden):
        made.matrix(f"mlp.{name}", out, into, span)
    target = config.text.get("target_hidden_size") or hidden
    made.plain("fc.weight", [hidden, 3 * int(target) if third else 2 * hidden])
    words = config.text.get("draft_vocab_size") or shape.vocabulary
    made.plain("lm_head.weight", [int(words), hidden], doubt=(0.0, 1.0))
    made.plain("model.embed_tokens.weight", [shape.vocabulary, hidden], doubt=(0.0, 1.0))
    return made.told()


def _vocabulary(made: Parts, config: Config, shape: Geometry) -> None:
    rows = [shape.vocabulary, shape.hidden]
    made.plain("model.embed_tokens.weight", rows)
    tied = config.text.get("tie_word_embeddings", config.top.get("tie_word_embeddings"))
    if tied is None:
        tied = config.model_type.startswith(_TIED)
        made.plain("lm_head.weight", rows, doubt=(0.0, 1.0) if tied else (0.0, 1.015))
    elif not tied:
        made.plain("lm_head.weight", rows)


def _tower(made: Parts, config: Config, shape: Geometry) -> None:
    """Of images; whether a rank holds all of it or a share is weights.py's to say."""
    part = config.top.get("vision_config")
    if not isinstance(part, dict) or not part:
        if shape.multimodal and config.nested:
            # left to Transformers' class: up to 2 GiB are known (Llama 4: 0.9)
            made.plain("vision_model.weight", [1 << 29], doubt=(0.0, 2.0))
        return
    layers = _first(part, "depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    wide = _first(part, "hidden_size", "vt_hidden_size", "embed_dim", "width")
    inner = _first(part, "intermediate_size", "vt_intermediate_size") or 4 * wide
    if not layers or not wide:
        made.plain("vision_model.weight", [1 << 29], doubt=(0.0, 2.0))
        return
    body = layers * wide * (4 * wide + 2 * inner)
    merged = 4 * wide * (4 * wide + shape.hidden)  # four patches become one token
    merged *= 1 + len(part.get("deepstack_visual_indexes") or ())
    made.plain("vision_model.weight", [body + merged], doubt=_TOWER)


def _first(part: Mapping[str, Any], *keys: str) -> int:
    return next((int(part[key]) for key in keys if isinstance(part.get(key), int)), 0)


def _drafts(made: Parts, config: Config, shape: Geometry, layers: int) -> None:
    """MTP layers inside the checkpoint: of the target's own kind, with full attention."""
    text = config.text
    count = shape.nextn or _first(text, "mtp_num_hidden_layers")
    count = count or int(shape.architecture in _UNSAID_DRAFT)
    if not count or shape.architecture.startswith("NemotronH"):
        return
    draft = Parts(made.stored, (0.9, 1.1))
    span = tuple(range(layers, layers + count))
    if isinstance(shape.attention, Latent):
        latent(draft, config, shape, span)
    else:
        kind = shape.attention
        assert isinstance(kind, Heads)
        heads(draft, config, shape, kind, span)
    if shape.architecture in _OWN_VOCABULARY:
        for name in ("embed_tokens", "lm_head"):
            draft.plain(f"mtp.{name}.weight", [shape.vocabulary, shape.hidden])
    found = ffn.experts(config, shape, layers)
    if found is None:
        width = config.whole("intermediate_size")
        for name, out, into in _three(width, shape.hidden):
            draft.matrix(f"mlp.{name}", out, into, span)
    else:
        moved = ffn.Experts(found.count, found.width, found.shared, span)
        ffn.routed(draft, config, shape, moved)
    draft.plain("mtp.eh_proj.weight", [shape.hidden, 2 * shape.hidden], each=count)
    for group in draft.groups:
        group["layers"] = None
        group["name"] = f"mtp.{str(group['name']).removeprefix('mtp.')}"
    made.groups += draft.groups


def _three(width: int, hidden: int) -> tuple[tuple[str, int, int], ...]:
    return ("gate_proj", width, hidden), ("up_proj", width, hidden), ("down_proj", hidden, width)
