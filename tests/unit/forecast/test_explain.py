"""`--explain` for every kind of attention: each figure with its product, units and source."""

import json
from typing import Any

import pytest

from opsctl.forecast.explain import explain
from opsctl.forecast.outlook import outlook
from opsctl.forecast.question import Given, Question, offline

LATENT = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
MLA = {**LATENT, "architectures": ["DeepseekV3ForCausalLM"]}
DSA = {
    **LATENT,
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 64,
}
GQA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SWA = {
    "architectures": ["GptOssForCausalLM"],
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
GDN = {
    "architectures": ["Qwen3NextForCausalLM"],
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size": 2048,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}
FP8 = {"kv-cache-dtype": "fp8_e4m3"}
TIER = {"enable-hierarchical-cache": True, "hicache-ratio": 2.0}


def question(config: dict[str, Any], version: str, tp: int, flags: dict[str, Any]) -> Question:
    given = Given(8, "NVIDIA H200", 140.4, 138.0, 80.0, None, 2000.0, 1900.0)
    folder = {"path": "", "texts": {"config.json": json.dumps(config)}, "files": []}
    entry = {
        "model": {"path": "/srv/models/m"},
        "engine": {"version": version},
        "flags": {"tp-size": tp, "mem-fraction-static": 0.85, **flags},
    }
    return Question("m", entry, offline(given, folder, None), given.calibration())


@pytest.mark.parametrize(
    ("config", "version", "tp", "flags", "parts"),
    [
        (MLA, "0.5.9", 8, {}, ["(512 + 64) elements × 61 layers × 2 B = 70,272 B"]),
        (MLA, "0.5.9", 8, FP8, ["(512 + 64) elements × 61 layers × 1 B = 35,136 B"]),
        (GQA, "0.5.23", 8, {}, ["1 KV heads × (128 + 128) elements × 80 layers × 2 B = 40,960 B"]),
        (GQA, "0.5.23", 1, {}, ["8 KV heads × (128 + 128) elements × 80 layers × 2 B = 327,680"]),
        # An FP8 row of DSA holds scales: no product of elements, and none is told.
        (DSA, "0.5.9", 8, FP8, [
            "656 B × 61 layers = 40,016 B", "index keys: 8,052 B", "both = 48,068 B",
            "divides by 43,188 B: what 0.5.9 counts",
        ]),
        (DSA, "0.5.23", 8, {}, ["keys and values: (512 + 64) elements", "both = 78,324 B"]),
        (SWA, "0.5.9", 8, {}, [
            "1 KV heads × (64 + 64) elements × 18 layers × 2 B = 4,608 B a rank",
            "a token of the window, which spans 12",
            "4,608 + 0.8 × 4,608 = 8,294.4 B",
            "tokens of the window's pool",
        ]),
        (GDN, "0.5.23", 2, {}, [
            "1 KV heads × (256 + 256) elements × 12 layers × 2 B = 12,288 B",
            "a slot of recurrent state (gdn) takes", "× 36 layers",
            "0.9 / (1 + 0.9) = 0.4737 of the rest", "KV gets what is left",
        ]),
        (MLA, "0.5.4", 8, TIER, ["down to whole pages of 1 token = ", "really takes 128.00 GiB"]),
        (MLA, "0.5.9", 8, TIER, ["whole pages of 1 token and one more"]),
        (DSA, "0.5.23", 8, TIER, ["pool indexer: takes the tokens of pool kv"]),
        (GDN, "0.5.23", 2, {**TIER, "hicache-mem-layout": "page_first"}, [
            "whole pages of 1 slot and one more",
        ]),
        (GQA, "0.5.23", 8, {"enable-hierarchical-cache": True}, [
            "0.5.23 chooses the ratio by the memory that it finds",
        ]),
    ],
)  # fmt: skip
def test_each_kind(
    config: dict[str, Any], version: str, tp: int, flags: dict[str, Any], parts: list[str]
) -> None:
    text = "\n".join(explain(outlook(question(config, version, tp, flags), steps=True)))
    for part in parts:
        assert part in text, text


def test_slots_are_as_large_as_their_pool() -> None:
    said = outlook(question(GDN, "0.5.23", 2, {}), steps=True)
    pool = next(one for one in said.result.device.pools if one.name == "mamba")
    slots = f"{pool.rows.value:,} slots of recurrent state and one of padding"
    assert f"{slots} = {pool.bytes.value / 2**30:.2f} GiB" in "\n".join(explain(said))


def test_a_pool_that_is_not_as_its_neighbour_says_so() -> None:
    flags = {
        **TIER,
        "speculative-algorithm": "EAGLE",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": 4,
    }
    config = {**MLA, "num_nextn_predict_layers": 1}
    said = outlook(question(config, "0.5.17", 8, flags), steps=True)
    tokens = {pool.name: pool.tokens for pool in said.result.pools[0]}
    assert tokens["draft"] != tokens["kv"]
    line = next(one for one in explain(said) if one.startswith("pool draft: takes"))
    assert line.endswith(f"pool kv, divided and rounded once more: {tokens['draft']:,}")


def test_sections_and_the_sum_of_the_ram() -> None:
    asked = question(MLA, "0.5.9", 8, TIER)
    lines = explain(outlook(asked, steps=True))
    assert [line for line in lines if line.startswith("# ")] == [
        "# GPU memory of one rank",
        "# host memory of one rank",
        "# RAM of the host",
        "# start",
    ]
    assert any("− 8 × 4.50 GiB for the processes" in line for line in lines)
    assert any(line.startswith("= ") and "16.00 GiB demanded" in line for line in lines)


def test_stages_are_told_apart() -> None:
    asked = question(GQA, "0.5.23", 4, {"pp-size": 2})
    lines = explain(outlook(asked, steps=True))
    assert "# GPU memory of one rank of pipeline stage PP1" in lines
