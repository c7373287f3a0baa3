"""Weights of one rank against what the engine logged ("mem usage" of the load) for public models.

The tensors are listed as the models' published checkpoints hold them: names and shapes follow
from config.json and the model classes; sizes of the whole are checked against the published ones.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.forecast import sharding
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import ESTIMATED, NoForecast
from opsctl.forecast.weights import DRAFT, GiB, weights

BYTES = {"BF16": 2, "F8_E4M3": 1, "F32": 4, "I32": 4, "U8": 1}


class Checkpoint:
    """Groups of tensors, as the host's facts tell them."""

    def __init__(self) -> None:
        self.by: list[dict[str, Any]] = []

    def add(self, name: str, shape: list[int], dtype: str = "BF16", **at: Any) -> None:
        span, each = at.get("span"), at.get("each", 1)
        count = each * ((span[1] - span[0] + 1) if span else 1)
        size = count * BYTES[dtype]
        for part in shape:
            size *= part
        self.by.append(
            {
                "name": name,
                "dtype": dtype,
                "shape": shape,
                "layers": list(span) if span else None,
                "count": count,
                "bytes": size,
            }
        )

    def matrix(self, name: str, out: int, into: int, how: str = "BF16", **at: Any) -> None:
        """A linear layer: plain, FP8 in blocks of 128, INT4 in groups of 32 or NVFP4."""
        if how == "BF16":
            self.add(f"{name}.weight", [out, into], **at)
        elif how == "FP8":
            self.add(f"{name}.weight", [out, into], "F8_E4M3", **at)
            self.add(f"{name}.weight_scale_inv", [-(-out // 128), -(-into // 128)], "F32", **at)
        elif how == "INT4":
            self.add(f"{name}.weight_packed", [out, into // 8], "I32", **at)
            self.add(f"{name}.weight_scale", [out, into // 32], **at)
        else:
            self.add(f"{name}.weight", [out, into // 2], "U8", **at)
            self.add(f"{name}.weight_scale", [out, into // 16], "F8_E4M3", **at)

    def told(self) -> dict[str, Any]:
        size = sum(group["bytes"] for group in self.by)
        return {"count": sum(g["count"] for g in self.by), "bytes": size, "by": self.by}


def plain(layers: int, hidden: int, inner: int, q: int, kv: int, head: int, words: int) -> Any:
    """Llama and Qwen3: dense layers of grouped attention."""
    made, span = Checkpoint(), (0, layers - 1)
    for name, out in (("q_proj", q * head), ("k_proj", kv * head), ("v_proj", kv * head)):
        made.matrix(f"model.layers.#.self_attn.{name}", out, hidden, span=span)
    made.matrix("model.layers.#.self_attn.o_proj", hidden, q * head, span=span)
    for name in ("gate_proj", "up_proj"):
        made.matrix(f"model.layers.#.mlp.{name}", inner, hidden, span=span)
    made.matrix("model.layers.#.mlp.down_proj", hidden, inner, span=span)
    made.add("model.embed_tokens.weight", [words, hidden])
    made.add("lm_head.weight", [words, hidden])
    return made.told()


def qwen3_moe(how: str) -> Any:
    """Qwen3-30B-A3B, in BF16 or FP8."""
    made, span, layer = Checkpoint(), (0, 47), "model.layers.#"
    for name, out in (("q_proj", 4096), ("k_proj", 512), ("v_proj", 512)):
        made.matrix(f"{layer}.self_attn.{name}", out, 2048, how, span=span)
    made.matrix(f"{layer}.self_attn.o_proj", 2048, 4096, how, span=span)
    for name, out, into in (
        ("gate_proj", 768, 2048),
        ("up_proj", 768, 2048),
        ("down_proj", 2048, 768),
    ):
        made.matrix(f"{layer}.mlp.experts.#.{name}", out, into, how, span=span, each=128)
    made.add(f"{layer}.mlp.gate.weight", [128, 2048], span=span)
    made.add("model.embed_tokens.weight", [151936, 2048])
    made.add("lm_head.weight", [151936, 2048])
    return made.told()


def deepseek(
    prefix: str,
    layers: int,
    dense: int,
    hidden: int,
    heads: int,
    *,
    experts: int,
    inner: int,
    wide: int,
    words: int,
    q_rank: int = 1536,
    nope: int = 128,
    value: int = 128,
    how: str,
    attention: str,
    indexer: bool = False,
    mtp: bool = False,
) -> Checkpoint:
    """The DeepSeek-V3 family: MLA, dense layers first, then experts with a shared one."""
    made, last = Checkpoint(), layers - (0 if mtp else 1)
    span, sparse, layer = (0, last), (dense, last), f"{prefix}model.layers.#"
    made.matrix(f"{layer}.self_attn.q_a_proj", q_rank, hidden, attention, span=span)
    made.matrix(f"{layer}.self_attn.q_b_proj", heads * (nope + 64), q_rank, attention, span=span)
    made.matrix(f"{layer}.self_attn.kv_a_proj_with_mqa", 576, hidden, attention, span=span)
    made.matrix(f"{layer}.self_attn.kv_b_proj", heads * (nope + value), 512, attention, span=span)
    made.matrix(f"{layer}.self_attn.o_proj", hidden, heads * value, attention, span=span)
    if indexer:
        made.matrix(f"{layer}.self_attn.indexer.wq_b", 4096, q_rank, attention, span=span)
        made.matrix(f"{layer}.self_attn.indexer.wk", 128, hidden, attention, span=span)
    for name in ("gate_proj", "up_proj", "down_proj"):
        down = name == "down_proj"
        one = (hidden, inner) if down else (inner, hidden)
        made.matrix(f"{layer}.mlp.experts.#.{name}", *one, how, span=sparse, each=experts)
        other = attention if how == "INT4" else how
        made.matrix(f"{layer}.mlp.shared_experts.{name}", *one, other, span=sparse)
        big = (hidden, wide) if down else (wide, hidden)
        made.matrix(f"{layer}.mlp.{name}", *big, other, span=(0, dense - 1))
    made.add(f"{layer}.mlp.gate.weight", [experts, hidden], span=sparse)
    made.add(f"{layer}.input_layernorm.weight", [hidden], span=span)
    made.add(f"{prefix}model.embed_tokens.weight", [words, hidden])
    made.add(f"{prefix}lm_head.weight", [words, hidden])
    return made


def kimi() -> dict[str, Any]:
    made = deepseek(
        "language_model.", 61, 1, 7168, 64, experts=384, inner=2048, wide=18432, words=163840,
        how="INT4", attention="BF16",
    )  # fmt: skip
    tower = "vision_tower.encoder.blocks.#"
    made.matrix(f"{tower}.wqkv", 3456, 1152, span=(0, 26))
    made.matrix(f"{tower}.wo", 1152, 1152, span=(0, 26))
    made.matrix(f"{tower}.mlp.fc0", 4304, 1152, span=(0, 26))
    made.matrix(f"{tower}.mlp.fc1", 1152, 4304, span=(0, 26))
    return made.told()


def glm5() -> dict[str, Any]:
    return deepseek(
        "", 78, 3, 6144, 64, experts=256, inner=2048, wide=12288, words=154880, q_rank=2048,
        nope=192, value=256, how="FP8", attention="FP8", indexer=True, mtp=True,
    ).told()  # fmt: skip


def deepseek_nvfp4() -> dict[str, Any]:
    return deepseek(
        "", 61, 3, 7168, 128, experts=256, inner=2048, wide=18432, words=129280, how="NVFP4",
        attention="BF16",
    ).told()  # fmt: skip


def shape(architecture: str, layers: int, kv: int | None = None, q: int = 64) -> Any:
    fields: dict[str, Any] = {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "num_attention_heads": q,
        "head_dim": 128,
    }
    if kv:
        fields["num_key_value_heads"] = kv
    else:
        fields |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    return geometry(json.dumps(fields))


LLAMA = plain(32, 4096, 14336, 32, 8, 128, 128256), shape("LlamaForCausalLM", 32, 8)
QWEN_8B = plain(36, 4096, 12288, 32, 8, 128, 151936), shape("Qwen3ForCausalLM", 36, 8)
QWEN_14B = plain(40, 5120, 17408, 40, 8, 128, 151936), shape("Qwen3ForCausalLM", 40, 8)
QWEN_MOE = shape("Qwen3MoeForCausalLM", 48, 4)
KIMI = kimi(), shape("KimiK25ForConditionalGeneration", 61)
GLM5 = glm5(), shape("GlmMoeDsaForCausalLM", 78)
NVFP4 = deepseek_nvfp4(), shape("DeepseekV3ForCausalLM", 61)

# (what, checkpoint, geometry, ranks, GiB that the engine logged). All from public logs; the
# reference deployment's is its free memory before (from its tokens) less that after.
LOGGED = [
    ("Llama-3.1-8B BF16, H100", *LLAMA, 1, 15.02),
    ("Llama-3.1-8B BF16, H100, 2025-03", *LLAMA, 1, 15.11),
    ("Qwen3-8B BF16, B200, 2026-04", *QWEN_8B, 1, 15.28),
    ("Qwen3-14B BF16, 2025-05", *QWEN_14B, 1, 27.57),
    ("Qwen3-14B BF16, TP4", *QWEN_14B, 4, 7.08),
    ("Qwen3-30B-A3B BF16", qwen3_moe("BF16"), QWEN_MOE, 1, 56.89),
    ("Qwen3-30B-A3B FP8, 2026-08", qwen3_moe("FP8"), QWEN_MOE, 1, 29.15),
    ("Kimi-K2.5 INT4, RTX PRO 6000", *KIMI, 8, 94.05 - 21.71),
    ("Kimi-K2.5 INT4, MI355X, 0.5.9", *KIMI, 8, 73.58),
    ("GLM-5-FP8, MI355X, 0.5.9", *GLM5, 8, 89.58),
    ("DeepSeek NVFP4, B200, 2025-08", *NVFP4, 4, 94.50),
]


@pytest.mark.parametrize("case", LOGGED, ids=[case[0] for case in LOGGED])
def test_the_band_holds_what_the_engine_logged(case: Any) -> None:
    _, tensors, model, ranks, logged = case
    vendor = "amd" if "MI355X" in case[0] else "nvidia"
    found = weights(tensors, model, {"tp-size": ranks}, "0.5.9", vendor=vendor)
    assert found.basis == ESTIMATED and found.least is not None and found.most is not None
    assert found.least <= logged * GiB <= found.most
    assert abs(found.value - logged * GiB) < max(0.02 * logged, 0.25) * GiB  # and is near it


def test_the_checkpoints_have_their_published_sizes() -> None:
    """In decimal GB, as the model hubs show them."""
    assert LLAMA[0]["bytes"] / 1e9 == pytest.approx(16.06, abs=0.01)
    assert KIMI[0]["bytes"] / 1e9 == pytest.approx(595, rel=0.005)
    assert GLM5[0]["bytes"] / 1e9 == pytest.approx(756, rel=0.005)
    assert qwen3_moe("BF16")["bytes"] / 1e9 == pytest.approx(61.06, abs=0.05)


def test_size_over_ranks_would_be_wrong() -> None:
    found = weights(*KIMI, {"tp-size": 8}, "0.5.9")
    assert KIMI[0]["bytes"] / 8 < 0.97 * found.value


def test_mtp_layers_are_the_draft_and_not_the_target() -> None:
    tensors, model = GLM5
    target = weights(tensors, model, {"tp-size": 8}, "0.5.9").value
    draft = weights(tensors, model, {"tp-size": 8}, "0.5.14", DRAFT)
    experts = 256 * 3 * 6144 * 2048
    assert experts / 8 < draft.value < 1.15 * experts / 8 + 0.2 * GiB
    assert draft.most is not None and draft.most > draft.value + 154880 * 6144 * 4 // 8
    assert target * 8 < tensors["bytes"] * 1.02
    with pytest.raises(NoForecast, match="no tensors of the draft"):
        weights(*LLAMA, {}, "0.5.9", DRAFT)


def test_dp_attention_keeps_the_attention_whole() -> None:
    tensors, model = NVFP4
    split = weights(tensors, model, {"tp-size": 4}, "0.5.9").value
    flags = {"tp-size": 4, "dp-size": 4, "enable-dp-attention": True}
    whole = weights(tensors, model, flags, "0.5.9").value
    attention = 61 * 2 * (1536 * 128 * 192 + 512 * 128 * 256 * 2 + 7168 * 128 * 128)
    embedding = 129280 * 7168 * 2
    assert whole - split == pytest.approx(0.75 * (attention + embedding), rel=0.02)


def test_fewer_kv_heads_than_ranks_are_replicated() -> None:
    cut = sharding.split({"tp-size": 8})
    assert sharding.share(sharding.KV, cut, 4) == (0.25, 0.25, 0.25)
    assert sharding.share(sharding.KV, cut, 8) == (0.125, 0.125, 0.125)


def test_vocabularies_are_padded() -> None:
    made = Checkpoint()
    made.add("lm_head.weight", [100, 64])
    found = weights(made.told(), LLAMA[1], {}, "0.5.9")
    assert found.least == int(128 * 64 * 2 * 0.995)


def test_stages_hold_their_layers() -> None:
    whole = weights(*LLAMA, {}, "0.5.9")
    half = weights(*LLAMA, {"pp-size": 2}, "0.5.9")
    assert half.least is not None and half.most is not None
    assert half.least < whole.value / 2 < half.most < whole.value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"quantization": "fp8"}, "not quantised itself"),
        ({"cpu-offload-gb": 8}, "cpu-offload-gb"),
        ({"torchao-config": "int4wo-128"}, "torchao"),
    ],
)
def test_what_changes_the_weights_while_loading_is_refused(flags: Any, words: str) -> None:
    with pytest.raises(NoForecast, match=words):
        weights(*LLAMA, flags, "0.5.9")
    with pytest.raises(NoForecast, match="not known"):
        weights({"count": 0, "bytes": 0, "by": []}, LLAMA[1], {}, "0.5.9")
