"""Models with sliding-window or chunked layers: which layers, and with which heads. Whether a
release gives these layers a pool of their own is told by forecast/device/window.py.

Sources: configs/model_config.py `get_hybrid_layer_ids`, `get_swa_num_kv_heads`;
utils/hf_transformers/config.py (Gemma 4).
"""

from __future__ import annotations

from opsctl.forecast.shape.config import Config, number, optional
from opsctl.forecast.values import Heads, NoForecast

_GEMMA4 = {
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
}
_MIMO = {"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"}
_STEP = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"}
_BY_LAYER_TYPES = {
    "GptOssForCausalLM",
    "GraniteMoeSWAForCausalLM",
    "GraniteSWAForCausalLM",
    "IQuestQ1ForCausalLM",
    "LagunaForCausalLM",
    "MellumForCausalLM",
    "MuseGlimmerForCausalLM",
    "MuseGlimmerForConditionalGeneration",
}
_GEMMA_EARLY = {
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma3nForCausalLM",
    "Gemma3nForConditionalGeneration",
}
_OLMO = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"}
_LLAMA4 = "Llama4ForConditionalGeneration"


def window_layers(config: Config, layers: int) -> tuple[int, ...]:
    """Ids of the layers with a window. () for an architecture that no release treats so.

    Raises NoForecast where the file does not tell the layers.
    """
    name = config.architecture
    if name == _LLAMA4:
        return tuple(n for n in range(layers) if (n + 1) % 4)
    if name in _MIMO:
        pattern = config.text.get("hybrid_layer_pattern")
        if not isinstance(pattern, list) or len(pattern) < layers:
            raise NoForecast(f"config.json of {name} lacks hybrid_layer_pattern for its layers")
        return tuple(n for n in range(layers) if pattern[n] == 1)
    if name == "LagunaForCausalLM" and not config.text.get("sliding_window"):
        return ()
    if name in _BY_LAYER_TYPES | _GEMMA4 | _STEP:
        return _sliding(config, layers)
    if name == "Gemma2ForCausalLM":
        return tuple(range(0, layers, 2))
    if name in _GEMMA_EARLY:
        return _gemma3(config, layers)
    if name in _OLMO and config.text.get("sliding_window"):
        return _sliding(config, layers)
    return ()


def _sliding(config: Config, layers: int) -> tuple[int, ...]:
    kinds = config.text.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) < layers:
        raise NoForecast(f"config.json of {config.architecture} lacks layer_types for its layers")
    unknown = set(map(str, kinds[:layers])) - {"sliding_attention", "full_attention"}
    if unknown:
        raise NoForecast(
            f"{config.architecture} has layers of the kind {', '.join(sorted(unknown))}"
        )
    return tuple(n for n in range(layers) if kinds[n] == "sliding_attention")


def _gemma3(config: Config, layers: int) -> tuple[int, ...]:
    """Five layers with a window to one without where the file says nothing: so do Transformers'
    classes of Gemma 3; those of Gemma 3n have no rule of that kind (every fifth)."""
    if isinstance(config.text.get("layer_types"), list):
        return _sliding(config, layers)
    every = 5 if config.architecture.startswith("Gemma3n") else 6
    every = optional(config.text, "sliding_window_pattern", config.architecture) or every
    return tuple(n for n in range(layers) if (n + 1) % every)


def window_heads(config: Config, full: Heads) -> Heads | None:
    """Heads of the window layers; None: as the other layers."""
    name, text = config.architecture, config.text
    if name in _GEMMA4:
        return Heads(
            number(text, "num_key_value_heads", name),
            number(text, "head_dim", name),
            number(text, "head_dim", name),
        )
    count = optional(text, "swa_num_key_value_heads", name)
    other = text.get("attention_other_setting")
    if count is None and isinstance(other, dict):
        count = number(other, "num_attention_groups", name)
    head_dim = optional(text, "swa_head_dim", name)
    v_head_dim = optional(text, "swa_v_head_dim", name)
    head_dim = full.head_dim if head_dim is None else head_dim
    if v_head_dim is None and full.head_dim != full.v_head_dim:
        # up to 0.5.13 that of the other layers stands in, later the window layers' own head_dim
        raise NoForecast(f"config.json of {name} lacks swa_v_head_dim")
    found = Heads(count or full.count, head_dim, v_head_dim or head_dim)
    return None if found == full else found


def gemma4_full(config: Config) -> Heads | None:
    """Gemma 4 states the window layers' heads first, and those of the full layers as
    global_head_dim and num_global_key_value_heads."""
    name, text = config.architecture, config.text
    if name not in _GEMMA4:
        return None
    if text.get("per_layer_config"):
        raise NoForecast(f"{name} states its heads layer by layer (per_layer_config)")
    head_dim = number(text, "global_head_dim", name)
    count = optional(text, "num_global_key_value_heads", name)
    if count is not None and text.get("attention_k_eq_v") is not True:
        # up to 0.5.20 the number counts by itself, later only with attention_k_eq_v
        raise NoForecast(f"{name}: num_global_key_value_heads without attention_k_eq_v")
    count = count or number(text, "num_key_value_heads", name)
    return Heads(count, head_dim, head_dim)


def window_tokens(config: Config) -> int | None:
    """What the window spans. Chunked attention (Llama 4) has no other name for it."""
    keys = ("sliding_window_size", "sliding_window", "window_size", "attention_chunk_size")
    for key in keys:
        value = config.text.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
