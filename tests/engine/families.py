"""Tiny config.json files of model families, as Hypothesis strategies.

The fields are those that the published checkpoints carry; the figures are drawn. `versions`: the
engines that know the family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
BOTH, OLD, NEW = ("0.5.9", "0.5.23"), ("0.5.9",), ("0.5.23",)


@dataclass(frozen=True)
class Family:
    name: str
    config: st.SearchStrategy[Config]
    versions: tuple[str, ...] = BOTH
    pages: tuple[int, ...] = (1, 16, 32, 64)
    dtypes: tuple[str, ...] = ("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2")
    pipeline: bool = True  # the engine can split it over stages
    attention: str | None = "triton"  # attention-backend; None: left to the engine
    tiered: tuple[str, ...] = BOTH  # versions whose host tier takes it
    kind: str = ""  # "window", "recurrent" or "sparse": flags of their own are drawn too
    drafts: tuple[str, ...] = ()  # "mtp": layers of the checkpoint itself; "eagle3": a folder


def power(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda n: 1 << n)


def common(draw: Any, architecture: str, model_type: str, **more: Any) -> Config:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": 256,
        "intermediate_size": 256,
        "vocab_size": 1024,
        "num_hidden_layers": draw(st.integers(2, 24)),
        "max_position_embeddings": draw(st.sampled_from([2048, 8192, 131072])),
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        **more,
    }


def heads(draw: Any) -> Config:
    kv = draw(power(0, 4))
    return {
        "num_attention_heads": kv * draw(power(0, 2)),
        "num_key_value_heads": kv,
        "head_dim": draw(st.sampled_from([32, 64, 96, 128, 192, 256])),
    }


@st.composite
def plain(draw: Any) -> Config:
    """Multi-head attention: as many KV heads as heads, and no head_dim in the file."""
    count = draw(power(1, 4))
    return common(
        draw,
        "LlamaForCausalLM",
        "llama",
        num_attention_heads=count,
        num_key_value_heads=count,
        hidden_size=count * draw(st.sampled_from([32, 64, 128])),
    )


@st.composite
def grouped(draw: Any) -> Config:
    return common(draw, "Qwen3ForCausalLM", "qwen3", **heads(draw))


@st.composite
def mixture(draw: Any) -> Config:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    return common(draw, "Qwen3MoeForCausalLM", "qwen3_moe", **heads(draw), **experts)


@st.composite
def glm4_moe(draw: Any) -> Config:
    return common(
        draw,
        "Glm4MoeForCausalLM",
        "glm4_moe",
        **heads(draw),
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        n_shared_experts=1,
        first_k_dense_replace=1,
        num_nextn_predict_layers=1,
    )


@st.composite
def minimax(draw: Any) -> Config:
    more = {"num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 32}
    return common(draw, "MiniMaxM2ForCausalLM", "minimax_m2", **heads(draw), **more)


@st.composite
def uneven_values(draw: Any) -> Config:
    """K and V heads of different sizes, without windows."""
    found = common(draw, "Qwen2ForCausalLM", "qwen2", **heads(draw))
    found["v_head_dim"] = draw(st.sampled_from([32, 64, 128]))
    return found


def latent(draw: Any) -> Config:
    count = draw(power(2, 4))
    return {
        "num_attention_heads": count,
        "num_key_value_heads": count,
        "kv_lora_rank": draw(st.sampled_from([128, 256, 512])),
        "q_lora_rank": 128,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": draw(st.sampled_from([32, 64])),
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "num_nextn_predict_layers": 1,
    }


@st.composite
def deepseek(draw: Any) -> Config:
    return common(draw, "DeepseekV3ForCausalLM", "deepseek_v3", **latent(draw))


@st.composite
def kimi_nested(draw: Any) -> Config:
    text = common(draw, "DeepseekV3ForCausalLM", "deepseek_v3", **latent(draw))
    text["num_nextn_predict_layers"] = 0
    vision = {
        "patch_size": 14,
        "vt_num_attention_heads": 4,
        "vt_num_hidden_layers": draw(st.integers(1, 30)),
        "vt_hidden_size": draw(st.sampled_from([256, 1024, 1152])),
        "vt_intermediate_size": 128,
        "merge_kernel_size": [2, 2],
        "text_hidden_size": 256,
        "mm_hidden_size": 128,
    }
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
        "media_placeholder_token_id": 1,
        "ignore_index": -100,
        "pad_token_id": 0,
        "use_unified_vision_chunk": True,
    }


def sparse(draw: Any) -> Config:
    # The pools' scale arithmetic asks for blocks of 128.
    return {
        **latent(draw),
        "kv_lora_rank": draw(st.sampled_from([128, 256, 512])),
        "qk_rope_head_dim": 64,
        "index_topk": 64,
        "index_head_dim": 128,
        "index_n_heads": 4,
    }


@st.composite
def deepseek_sparse(draw: Any) -> Config:
    return common(draw, "DeepseekV32ForCausalLM", "deepseek_v32", **sparse(draw))


@st.composite
def glm5(draw: Any) -> Config:
    found = common(draw, "GlmMoeDsaForCausalLM", "glm_moe_dsa", **sparse(draw))
    # GLM-5.2 shares the choice of keys between layers.
    shared = draw(st.sampled_from([{}, {"index_topk_freq": 4, "index_skip_topk_offset": 3}]))
    return {**found, "head_dim": 192, "qk_head_dim": 192, **shared}


def kinds(draw: Any, layers: int, names: tuple[str, str]) -> list[str]:
    """A list of layer types in which both occur."""
    found = draw(st.lists(st.sampled_from(names), min_size=layers, max_size=layers))
    found[0], found[-1] = names
    return found


@st.composite
def gpt_oss(draw: Any) -> Config:
    found = common(draw, "GptOssForCausalLM", "gpt_oss", **heads(draw))
    found |= {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128}
    names = ("sliding_attention", "full_attention")
    return {**found, "layer_types": kinds(draw, found["num_hidden_layers"], names)}


@st.composite
def llama4(draw: Any) -> Config:
    text = common(draw, "Llama4ForCausalLM", "llama4_text", **heads(draw))
    text["num_hidden_layers"] = draw(st.integers(4, 16))
    text |= {
        "attention_chunk_size": 2048,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 256,
        "interleave_moe_layer_step": 1,
    }
    vision = {"model_type": "llama4_vision_model", "hidden_size": 128, "num_hidden_layers": 2}
    return {
        "architectures": ["Llama4ForConditionalGeneration"],
        "model_type": "llama4",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
    }


@st.composite
def mimo(draw: Any) -> Config:
    found = common(draw, "MiMoV2FlashForCausalLM", "mimo_v2_flash", **heads(draw))
    layers = found["num_hidden_layers"]
    pattern = draw(st.lists(st.sampled_from([0, 1]), min_size=layers, max_size=layers))
    pattern[0], pattern[-1] = 0, 1
    kv = draw(power(0, 4))
    return {
        **found,
        "head_dim": 192,
        "v_head_dim": 128,
        "hybrid_layer_pattern": pattern,
        "swa_num_attention_heads": kv * 2,
        "swa_num_key_value_heads": kv,
        "swa_head_dim": draw(st.sampled_from([64, 192])),
        "swa_v_head_dim": draw(st.sampled_from([64, 128])),
        "sliding_window": 128,
        "sliding_window_size": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    }


@st.composite
def gemma3(draw: Any) -> Config:
    found = common(draw, "Gemma3ForCausalLM", "gemma3_text", **heads(draw))
    names = ("sliding_attention", "full_attention")
    found["layer_types"] = kinds(draw, found["num_hidden_layers"], names)
    return {**found, "sliding_window": 512, "query_pre_attn_scalar": 64}


@st.composite
def gemma4(draw: Any) -> Config:
    text = common(draw, "Gemma4ForCausalLM", "gemma4_text", **heads(draw))
    names = ("sliding_attention", "full_attention")
    text |= {
        "layer_types": kinds(draw, text["num_hidden_layers"], names),
        "sliding_window": 512,
        "global_head_dim": draw(st.sampled_from([128, 256, 512])),
        "num_kv_shared_layers": 0,
        **draw(
            st.sampled_from(
                [
                    {"num_global_key_value_heads": None, "attention_k_eq_v": False},
                    {"num_global_key_value_heads": 4, "attention_k_eq_v": True},
                    {"num_global_key_value_heads": 2, "attention_k_eq_v": True},
                ]
            )
        ),
    }
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"model_type": "gemma4_vision", "num_hidden_layers": 2},
        "audio_config": None,
    }


def gated_delta(draw: Any) -> Config:
    groups = draw(power(2, 4))
    return {
        "linear_num_key_heads": groups,
        "linear_num_value_heads": groups * draw(st.sampled_from([1, 2])),
        "linear_key_head_dim": draw(st.sampled_from([64, 128])),
        "linear_value_head_dim": draw(st.sampled_from([64, 128])),
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }


@st.composite
def qwen3_next(draw: Any) -> Config:
    found = common(draw, "Qwen3NextForCausalLM", "qwen3_next", **heads(draw), **gated_delta(draw))
    return {**found, "num_hidden_layers": 4 * draw(st.integers(1, 6))}


@st.composite
def qwen35(draw: Any) -> Config:
    architecture = "Qwen3_5MoeForConditionalGeneration"
    text = common(draw, architecture, "qwen3_5_moe_text", **heads(draw), **gated_delta(draw))
    layers = text["num_hidden_layers"] = 4 * draw(st.integers(1, 6))
    text["layer_types"] = [
        "linear_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)
    ]
    text.pop("architectures")
    vision = {"model_type": "qwen3_5_moe", "depth": draw(st.integers(1, 30)), "hidden_size": 1152}
    vision |= {"num_heads": 4, "intermediate_size": 128, "out_hidden_size": 256}
    return {
        "architectures": [architecture],
        "model_type": "qwen3_5_moe",
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": vision,
        "tie_word_embeddings": False,
    }


@st.composite
def nemotron(draw: Any) -> Config:
    found = common(draw, "NemotronHForCausalLM", "nemotron_h", **heads(draw))
    layers = draw(st.integers(4, 16))
    pattern = draw(st.lists(st.sampled_from("M*-"), min_size=layers, max_size=layers))
    pattern[0], pattern[1] = "M", "*"
    return {
        **found,
        "num_hidden_layers": layers,
        "hybrid_override_pattern": "".join(pattern),
        "mamba_num_heads": draw(power(4, 6)),
        "mamba_head_dim": 64,
        "ssm_state_size": draw(st.sampled_from([64, 128])),
        "n_groups": draw(power(2, 3)),
        "conv_kernel": 4,
        "chunk_size": 128,
        "expand": 2,
        "mlp_hidden_act": "relu2",
        "layer_norm_epsilon": 1e-5,
    }


@st.composite
def falcon(draw: Any) -> Config:
    found = common(draw, "FalconH1ForCausalLM", "falcon_h1", **heads(draw))
    count = draw(power(4, 6))
    return {
        **found,
        "mamba_d_ssm": count * 64,
        "mamba_n_heads": count,
        "mamba_d_head": 64,
        "mamba_n_groups": draw(st.sampled_from([1, 2])),
        "mamba_d_state": draw(st.sampled_from([64, 128])),
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 128,
    }


@st.composite
def kimi_linear(draw: Any) -> Config:
    found = common(draw, "KimiLinearForCausalLM", "kimi_linear", **latent(draw))
    layers = found["num_hidden_layers"] = 4 * draw(st.integers(1, 6))
    found.pop("q_lora_rank")
    full = [i for i in range(1, layers + 1) if i % 4 == 0]
    return {
        **found,
        "q_lora_rank": None,
        "mla_use_nope": True,
        "num_experts": 8,
        "num_shared_experts": 1,
        "num_experts_per_token": 2,
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "linear_attn_config": {
            "full_attn_layers": full,
            "kda_layers": [i for i in range(1, layers + 1) if i not in full],
            "head_dim": draw(st.sampled_from([64, 128])),
            "num_heads": draw(power(3, 5)),
            "short_conv_kernel_size": 4,
        },
    }


@st.composite
def step(draw: Any) -> Config:
    found = common(draw, "Step3p5ForCausalLM", "step3p5", **heads(draw))
    names = ("sliding_attention", "full_attention")
    # Both kinds of layers share one pool geometry, and so do the published checkpoints' heads.
    kv = found["num_key_value_heads"]
    return {
        **found,
        "auto_map": {"AutoConfig": "configuration_step3p5.Step3p5Config"},
        "layer_types": kinds(draw, found["num_hidden_layers"], names),
        "num_attention_groups": found["num_key_value_heads"],
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": kv * 2,
            "num_attention_groups": kv,
            "head_dim": found["head_dim"],
        },
        "max_seq_len": found["max_position_embeddings"],
        "sliding_window": 512,
        "moe_num_experts": 8,
        "moe_top_k": 2,
        "moe_intermediate_size": 64,
    }


@st.composite
def deepseek_v4(draw: Any) -> Config:
    layers = draw(st.integers(4, 12))
    ratios = draw(st.lists(st.sampled_from([0, 4, 128]), min_size=layers, max_size=layers))
    return common(
        draw,
        "DeepseekV4ForCausalLM",
        "deepseek_v4",
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=1,
        head_dim=512,
        qk_rope_head_dim=64,
        q_lora_rank=128,
        o_lora_rank=128,
        o_groups=2,
        index_head_dim=128,
        index_n_heads=4,
        index_topk=64,
        compress_ratios=ratios,
        sliding_window=128,
        window_size=128,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_intermediate_size=64,
        num_hash_layers=0,
        hc_mult=4,
    )


@st.composite
def eagle3(draw: Any) -> Config:
    """A draft of one layer in a folder of its own, with heads of its own."""
    found = common(draw, "LlamaForCausalLMEagle3", "llama", **heads(draw))
    return {**found, "num_hidden_layers": 1, "draft_vocab_size": 512}


_DSA_DTYPES = ("auto", "bfloat16", "fp8_e4m3")
_PLAIN_DTYPES = ("auto", "bfloat16")
_FP4 = ("fp4_e2m1",)  # of 0.5.9: later releases name theirs otherwise, and are not forecast

FAMILIES: tuple[Family, ...] = (
    Family("mha", plain()),
    Family("gqa", grouped(), drafts=("eagle3",)),
    Family("gqa fp4", grouped(), versions=OLD, dtypes=_FP4, tiered=(), drafts=("eagle3",)),
    Family("mla fp4", deepseek(), versions=OLD, dtypes=_FP4, tiered=(), attention="flashinfer"),
    Family("gqa moe", mixture(), drafts=("eagle3",)),
    Family("glm4 moe", glm4_moe(), drafts=("mtp",)),
    Family("minimax m2", minimax()),
    Family("uneven values", uneven_values()),
    Family(
        "mla",
        deepseek(),
        drafts=(
            "mtp",
            "eagle3",
        ),
    ),
    Family("mla nested", kimi_nested(), drafts=("eagle3",)),
    Family(
        "dsa",
        deepseek_sparse(),
        kind="sparse",
        pages=(64,),
        dtypes=_DSA_DTYPES,
        attention=None,
        drafts=("mtp",),
    ),
    Family(
        "dsa glm5",
        glm5(),
        kind="sparse",
        pages=(64,),
        dtypes=_DSA_DTYPES,
        attention=None,
        drafts=("mtp",),
    ),
    Family("gpt-oss", gpt_oss(), kind="window", tiered=NEW, pipeline=False, drafts=("eagle3",)),
    Family("llama4", llama4(), kind="window", tiered=NEW, pipeline=False, drafts=("eagle3",)),
    Family("mimo v2", mimo(), kind="window", tiered=NEW, pipeline=False),
    Family("step 3.5", step(), kind="window", tiered=NEW, pipeline=False),
    Family("gemma3", gemma3()),
    Family("gemma4", gemma4(), kind="window", versions=NEW, pipeline=False),
    Family(
        "qwen3-next",
        qwen3_next(),
        kind="recurrent",
        tiered=NEW,
        pages=(1,),
        dtypes=_PLAIN_DTYPES,
        drafts=("mtp",),
    ),
    Family(
        "qwen3.5",
        qwen35(),
        kind="recurrent",
        tiered=NEW,
        pages=(1,),
        dtypes=_PLAIN_DTYPES,
        drafts=("mtp",),
    ),
    Family(
        "nemotron-h",
        nemotron(),
        attention="flashinfer",
        tiered=NEW,
        pages=(1,),
        dtypes=_PLAIN_DTYPES,
    ),
    Family("falcon-h1", falcon(), kind="recurrent", tiered=NEW, pages=(1,), dtypes=_PLAIN_DTYPES),
    Family(
        "kimi linear", kimi_linear(), kind="recurrent", tiered=NEW, pages=(1,), dtypes=_PLAIN_DTYPES
    ),
    Family("deepseek v4", deepseek_v4(), versions=NEW, pages=(256,), dtypes=("auto",)),
)

Draw = Callable[[st.SearchStrategy[Any]], Any]
