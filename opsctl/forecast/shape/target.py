"""The geometry of the model that a config.json describes.

A wrong number is worse than none. The engine sizes its pools by a handful of fields of
configs/model_config.py, whatever the architecture; what it treats differently is named here, and
so is what is not computed. Source: the released packages 0.5.2 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.forecast.shape import latent as mla
from opsctl.forecast.shape import window as swa
from opsctl.forecast.shape.config import (
    Config,
    context,
    element,
    head_dim,
    kv_heads,
    optional,
    read,
)
from opsctl.forecast.shape.linear import linear
from opsctl.forecast.shape.quant import kv_fp8
from opsctl.forecast.shape.refusals import refuse
from opsctl.forecast.shape.registry import FIRST, NEWEST, parsed
from opsctl.forecast.values import Geometry, Heads, Latent, NoForecast

# Architectures of files that the engine runs by a class of another name, and since when.
_RENAMED = {
    "DeepseekOCR2ForCausalLM": ("DeepseekOCRForCausalLM", "0.5.9"),
    "LongcatCausalLM": ("LongcatFlashForCausalLM", "0.5.10"),
    "Olmo3ForCausalLM": ("Olmo2ForCausalLM", "0.5.4"),
}
# Each layer attends this many times, with a KV row for each (num_attention_layers).
_TWICE = {"LongcatFlashForCausalLM"}
# Models with images whose file may be flat (is_multimodal_model).
_IMAGES = {"MiniCPMO", "MiniCPMV", "Phi4MMForCausalLM", "Qwen2VLForConditionalGeneration"}
_IMAGES |= {"Qwen2_5_VLForConditionalGeneration", "MultiModalityCausalLM"}
# … and those that run without images unless enable-multimodal is set.
_IMAGES_OFF = {"Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration"}
_IMAGES_OFF |= {"Step3VLForConditionalGeneration"}
_LOOPS = {"IQuestLoopCoderForCausalLM": "loop_num", "NanbeigeForCausalLM": "num_loops"}


def geometry(
    config_text: str, quant_text: str | None = None, version: str | None = None
) -> Geometry:
    """The geometry that a config.json (and ModelOpt's hf_quant_config.json) describes.

    `version`: the release that will run it; None: the newest one known. Raises NoForecast.
    """
    config = read(config_text, version)
    known(config.architecture, version)
    return of(config, quant_text, version)


def known(architecture: str, version: str | None) -> None:
    """Raises NoForecast for an architecture that the release has no class for: the engine would
    hand it to Transformers' classes, whose sizes are not known here."""
    name, first = _RENAMED.get(architecture, (architecture, FIRST.get(architecture, "")))
    if not first:
        raise NoForecast(f"no release up to {NEWEST} has a class for the architecture {name}")
    if parsed(version or NEWEST) < parsed(first):
        raise NoForecast(f"{version} has no class for {architecture}: the first release is {first}")


def multimodal(shape: Geometry, flags: Mapping[str, Any]) -> bool:
    """Whether the engine runs the model with images or sound (ModelConfig.is_multimodal)."""
    if not shape.multimodal or flags.get("language-model-only"):
        return False
    wanted = flags.get("enable-multimodal")
    if wanted is None:
        return shape.architecture not in _IMAGES_OFF
    return bool(wanted)


def of(config: Config, quant_text: str | None, version: str | None) -> Geometry:
    """Raises NoForecast."""
    refuse(config)
    hybrid = linear(config, version)
    layers = hybrid.layers if hybrid else _layers(config)
    common = _common(config, quant_text, version)
    if mla.is_latent(config):
        attention: Heads | Latent = mla.latent(config)
        common["indexer"] = mla.indexer(config, layers)
    else:
        attention = swa.gemma4_full(config) or _heads(config, version)
    if hybrid:
        return Geometry(
            layers=layers,
            attention=attention,
            full=hybrid.full,
            linear=hybrid.linear,
            state=hybrid.state,
            **common,
        )
    window = () if isinstance(attention, Latent) else swa.window_layers(config, layers)
    if window and isinstance(attention, Heads):
        common["window_attention"] = swa.window_heads(config, attention)
        common["window_tokens"] = swa.window_tokens(config)
    kept = set(window)
    full = tuple(n for n in range(layers) if n not in kept)
    return Geometry(layers=layers, attention=attention, full=full, window=window, **common)


def _layers(config: Config) -> int:
    layers = config.whole("num_hidden_layers")
    if config.architecture in _TWICE:
        return 2 * layers
    loops = _LOOPS.get(config.architecture)
    if loops:
        return layers * (optional(config.text, loops, config.architecture) or 1)
    return layers


def _heads(config: Config, version: str | None) -> Heads:
    size = head_dim(config, version)
    value = config.text.get("v_head_dim")
    if value in (None, 0):
        return Heads(kv_heads(config), size, size)
    return Heads(kv_heads(config), size, config.whole("v_head_dim"))


def _common(config: Config, quant_text: str | None, version: str | None) -> dict[str, Any]:
    text, name = config.text, config.architecture
    return {
        "architecture": _RENAMED.get(name, (name,))[0],
        "element": element(config),
        "kv_fp8": kv_fp8(config, quant_text, version),
        "context": context(config),
        "nextn": _nextn(config),
        "vision": _vision(config),
        "multimodal": config.nested or name in _IMAGES,
        "hidden": optional(text, "hidden_size", name) or 0,
        "q_heads": optional(text, "num_attention_heads", name) or 0,
        "vocabulary": optional(text, "vocab_size", name) or 0,
    }


def _nextn(config: Config) -> int:
    said = config.text.get("num_nextn_predict_layers")
    if said is None and config.architecture in _TWICE:
        return 1  # the default of the engine's own LongcatFlashConfig
    return 0 if said in (0, None) else config.whole("num_nextn_predict_layers")


def _vision(config: Config) -> tuple[int, int] | None:
    """(layers, hidden size) of a vision tower as the engine takes them into account: under these
    names alone, else those of a small tower (`adjust_mem_fraction_for_vlm`)."""
    part = config.top.get("vision_config")
    if not isinstance(part, dict):
        return None
    layers = next((part[key] for key in _VISION_LAYERS if isinstance(part.get(key), int)), 24)
    hidden = next((part[key] for key in _VISION_HIDDEN if isinstance(part.get(key), int)), 1024)
    return layers, hidden


_VISION_LAYERS = ("num_hidden_layers", "vt_num_hidden_layers")
_VISION_HIDDEN = ("hidden_size", "vt_hidden_size")
