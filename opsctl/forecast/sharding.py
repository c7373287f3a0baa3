"""How the engine splits one tensor of a checkpoint over the ranks, by the tensor's name.

Sources: the model classes of 0.5.9 and 0.5.23 (models/deepseek_v2.py, qwen3_moe.py, llama.py,
qwen3_next.py, …) with layers/linear.py, layers/vocab_parallel_embedding.py and
layers/moe/fused_moe_triton: column- and row-parallel layers are cut into equal parts, replicated
ones are whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.engine.rules import shared

# what a tensor is part of
EXPERT, SHARED, DENSE, ATTENTION, KV, WHOLE, EMBED, HEAD, VISION, UNKNOWN = range(10)
VOCABULARY_STEP = 64  # vocabularies are padded to a multiple of this

_WHOLE = {
    "e_proj",
    "eh_proj",
    "enorm",
    "f_a_proj",
    "fc",
    "g_a_proj",
    "gate",
    "h_proj",
    "hnorm",
    "kv_a_proj",
    "kv_a_proj_with_mqa",
    "q_a_proj",
    "router",
    "shared_expert_gate",
    "shared_head",
}
_ATTENTION = {
    "A_log",
    "D",
    "b_proj",
    "c_attn",
    "conv1d",
    "dt_bias",
    "f_b_proj",
    "g_b_proj",
    "g_proj",
    "in_proj",
    "in_proj_a",
    "in_proj_b",
    "in_proj_ba",
    "in_proj_qkv",
    "in_proj_qkvz",
    "in_proj_z",
    "k_conv1d",
    "kv_b_proj",
    "o_proj",
    "out_proj",
    "q_b_proj",
    "q_conv1d",
    "q_proj",
    "qkv_proj",
    "query_key_value",
    "sinks",
    "v_conv1d",
}
_DENSE = {"down_proj", "fc1", "fc2", "gate_proj", "gate_up_proj", "up_proj", "w1", "w2", "w3"}
_EMBED = {"embed_tokens", "embeddings", "tok_embeddings", "word_embeddings", "wte"}
_HEAD = {"lm_head", "output"}
_VISION = (
    "audio_tower",
    "embed_audio",
    "embed_vision",
    "mm_projector",
    "mlp1",
    "multi_modal_projector",
    "patch_merge_mlp",
    "vision_model",
    "vision_tower",
    "visual",
    "vit_large_projector",
    "vpm",
)
# endings that belong to a module and are no module themselves
_PARAMETERS = {
    "bias",
    "biases",
    "g_idx",
    "input_scale",
    "k_scale",
    "qweight",
    "qzeros",
    "scales",
    "v_scale",
    "weight",
    "weight_g_idx",
    "weight_global_scale",
    "weight_packed",
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
}


@dataclass(frozen=True, slots=True)
class Split:
    """Over how many ranks each part of the model is cut."""

    ranks: int  # tensor parallelism of the world: experts, dense layers
    attention: int  # ranks that share the attention of one data-parallel group
    dense: int  # dense layers: moe-dense-tp-size
    embed: int
    head: int
    stages: int
    experts_apart: bool  # expert parallelism: shared experts may be whole on every rank
    redundant: int  # experts that are held twice
    vision_whole: bool  # mm-enable-dp-encoder


def split(flags: Mapping[str, Any]) -> Split:
    """Of flags by their long names."""
    ranks = int(flags.get("tp-size") or 1)
    attention = max(1, ranks // shared.groups(flags))
    apart = int(flags.get("ep-size") or 1) > 1
    apart = apart or str(flags.get("moe-a2a-backend") or "none") != "none"
    return Split(
        ranks=ranks,
        attention=attention,
        dense=int(flags.get("moe-dense-tp-size") or ranks),
        embed=attention,
        head=attention if flags.get("enable-dp-lm-head") else ranks,
        stages=int(flags.get("pp-size") or 1),
        experts_apart=apart,
        redundant=int(flags.get("ep-num-redundant-experts") or 0),
        vision_whole=bool(flags.get("mm-enable-dp-encoder")),
    )


def kind(name: str) -> int:
    """What a tensor of this name (numbers replaced by #) is part of."""
    parts = name.split(".")
    if any(part in _VISION for part in parts):
        return VISION
    if parts[-1] in _PARAMETERS and len(parts) > 1:
        parts.pop()
    module = parts[-1]
    if "experts" in parts and "shared_experts" not in parts:
        return EXPERT
    if "shared_experts" in parts or "shared_expert" in parts or "shared_mlp" in parts:
        return SHARED
    if "indexer" in parts or module in _WHOLE or "norm" in module or "e_score_correction" in module:
        return WHOLE
    if module in _EMBED:
        return EMBED
    if module in _HEAD:
        return HEAD
    if module in ("k_proj", "v_proj"):
        return KV
    if module in _ATTENTION:
        return ATTENTION
    return DENSE if module in _DENSE else UNKNOWN


def share(what: int, cut: Split, kv_heads: int | None) -> tuple[float, float, float]:
    """Part of a tensor's bytes that one rank holds: (least, likely, most)."""
    if what == EXPERT:
        return _same(1 / cut.ranks)
    if what == SHARED:
        part = 1 / cut.ranks
        return part, part, 1.0 if cut.experts_apart else part
    if what == DENSE:
        return _same(1 / cut.dense)
    if what == ATTENTION:
        return _same(1 / cut.attention)
    if what == KV:  # with fewer heads than ranks each rank has one
        heads = kv_heads or cut.attention
        return _same(max(1, heads // cut.attention) / heads)
    if what == EMBED:
        return 1 / cut.ranks, 1 / cut.embed, 1 / cut.embed
    if what == HEAD:
        return _same(1 / cut.head)
    if what == VISION:  # split or whole by the tower's class
        likely = 1.0 if cut.vision_whole else 1 / cut.attention
        return min(likely, 1 / cut.ranks), likely, 1.0
    if what == UNKNOWN:
        return 1 / cut.ranks, 1 / cut.attention, 1.0
    return _same(1.0)


def _same(part: float) -> tuple[float, float, float]:
    return part, part, part
