"""MLA, and MLA with a DSA indexer: one latent row per token and layer, the same on every rank.

Sources: configs/model_config.py `_derive_model_shapes`, `is_deepseek_nsa` / `is_deepseek_dsa`,
`dsa_layer_skips_topk` (0.5.23).
"""

from __future__ import annotations

from opsctl.forecast.shape.config import Config, Fields
from opsctl.forecast.values import Indexer, Latent, NoForecast

# Architectures that every release that has them runs with MLA.
_LATENT = """
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
    DeepseekV3ForCausalLMNextN DotsVLMForCausalLM Eagle3DeepseekV2ForCausalLM
    Glm4MoeLiteForCausalLM Glm4MoeLiteForCausalLMNextN GlmMoeDsaForCausalLM
    GlmMoeDsaForCausalLMNextN KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration
    KimiK3LinearForCausalLM KimiLinearForCausalLM KimiVLForConditionalGeneration
    LongcatFlashForCausalLM LongcatFlashForCausalLMNextN MiniCPM3ForCausalLM
    MistralLarge3ForCausalLM MistralLarge3ForCausalLMEagle SarvamMLAForCausalLM
"""
_SPARSE = """
    DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV3ForCausalLMNextN GlmMoeDsaForCausalLM
    GlmMoeDsaForCausalLMNextN LongcatFlashForCausalLM LongcatFlashForCausalLMNextN
    MistralLarge3ForCausalLM PixtralForConditionalGeneration
"""
ARCHITECTURES = frozenset(_LATENT.split())
_DSA = frozenset(_SPARSE.split())


def is_latent(config: Config) -> bool:
    """Raises NoForecast where the file says MLA and no release is known to run it so."""
    name = config.architecture
    has_rank = config.text.get("kv_lora_rank") is not None
    if name in ARCHITECTURES:
        return True
    if name == "PixtralForConditionalGeneration":
        return has_rank
    if name == "DeepseekVL2ForCausalLM":
        return config.text.get("use_mla") is not False
    if name == "BailingMoeForCausalLMNextN":
        return has_rank  # the drafts of Ling 2.5 and 3; that of Ling 2 is plain
    if name == "DeepseekOCRForCausalLM":
        return False  # use_mla is off in the only checkpoint; the runner keeps plain heads
    if has_rank:
        raise NoForecast(f"{name} has kv_lora_rank, but is not known to run with MLA")
    return False


def latent(config: Config) -> Latent:
    """Raises NoForecast."""
    if config.architecture.startswith("BailingMoeV3") and config.text.get("use_mla_nope"):
        return Latent(config.whole("kv_lora_rank"), 0)
    return Latent(config.whole("kv_lora_rank"), config.whole("qk_rope_head_dim"))


def indexer(config: Config, layers: int) -> Indexer | None:
    """Raises NoForecast. Looked for at the top of the file only, as the engine does."""
    if config.architecture not in _DSA or config.top.get("index_topk") is None:
        return None
    if config.top.get("index_kpool") not in (None, 1):
        raise NoForecast(f"{config.architecture} pools its index keys (index_kpool)")
    head_dim = config.top.get("index_head_dim")
    if not isinstance(head_dim, int) or head_dim <= 0:
        raise NoForecast(f"config.json of {config.architecture} lacks index_head_dim")
    fresh = [layer for layer in range(layers) if not _shares(config.top, layer)]
    return Indexer(head_dim, tuple(fresh))


def _shares(top: Fields, layer: int) -> bool:
    """Whether a layer takes over the choice of the layer before it, and keeps no index keys."""
    kinds = top.get("indexer_types")
    if kinds is not None:
        return layer < len(kinds) and kinds[layer] == "shared"
    every = top.get("cli_factor") or 1
    if every > 1:
        return bool(layer % every)
    pattern = top.get("index_topk_pattern")
    if pattern is not None:
        return layer < len(pattern) and pattern[layer] == "S"
    every = top.get("index_topk_freq") or 1
    offset = top.get("index_skip_topk_offset")
    first = layer - 1 if offset is None else layer - offset + 1
    return bool(max(first, 0) % every)
