"""What a service and its host tell the conditions of advisories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.engine.advisories import Facts
from opsctl.forecast import advised
from opsctl.forecast.outlook import outlook
from opsctl.forecast.question import Given, Question, offline

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "views" / "collect-reference.json").read_text()
)["services"][0]["manifest"]
KIMI = json.dumps(
    {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "kimi_k2",
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "hidden_size": 7168,
            "vocab_size": 163840,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
            "max_position_embeddings": 262144,
            "torch_dtype": "bfloat16",
        },
        "vision_config": {"vt_num_hidden_layers": 27, "vt_hidden_size": 1152},
    }
)
GiB = 1 << 30
CARD = {
    "index": 0,
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "memory_total": 97887 << 20,
    "memory_used": 0,
    "state": "ok",
    "vendor": "nvidia",
    "capability": [12, 0],
}
ANSWER: dict[str, Any] = {
    "model": {"texts": {"config.json": KIMI}},
    "memory": {
        "total": 449 * GiB, "available": 414 * GiB, "swap_total": 8 * GiB, "swap_used": GiB,
        "free": 0, "hugetlb": 0,
    },
    "gpus": [{**CARD, "index": n} for n in range(8)],
    "gpu_strangers": [
        {"gpu": 3, "pid": 7, "memory": 5 * GiB, "comm": "python3", "service": ""},
        {"gpu": 3, "pid": 8, "memory": 90 * GiB, "comm": "sglang::schedul", "service": "other"},
    ],
    "cgroups": [{"path": "/ml.slice", "limit": 300 * GiB, "used": 0}],
    "unit": {"kill_mode": "process", "nofile": 1024, "memlock": -1},
    "driver": "580.65.06",
    "container": False,
    "shm": 2 * GiB,
}  # fmt: skip


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Facts]:
    """Facts that advisories were asked of."""
    asked: list[Facts] = []
    monkeypatch.setattr(advised, "advisories", lambda facts: asked.append(facts) or [])
    return asked


def test_a_host_that_told_everything(seen: list[Facts]) -> None:
    manifest = {**REFERENCE, "flags": {**REFERENCE["flags"], "mem-fraction-static": 0.88}}
    advised.advice(manifest, ANSWER)
    (facts,) = seen
    assert facts.version == "0.5.9"
    assert facts.model["family"] == "kimi-k2.5"
    assert facts.model["kind"][0] == "mla"
    assert facts.model["quant"] == "none"
    assert facts.hardware["capability"] == 12.0
    assert facts.hardware["taken"] == 5.0
    assert facts.hardware["mixed"] is False
    assert facts.ranks == {"host": 8, "tp": 8, "pp": 1, "dp": 1, "nodes": 1}
    assert facts.host["cgroup_limit"] == 300.0
    assert facts.host["swap_used"] == 1.0
    assert facts.host["driver"] == 580.65
    assert (facts.host["kill_mode"], facts.host["memlock"]) == ("process", -1)
    assert (facts.host["container"], facts.host["shm"]) == (False, 2.0)
    assert facts.forecast["context"] == 262144
    assert facts.forecast["verdict"]


def test_a_host_that_told_nothing(seen: list[Facts]) -> None:
    advised.advice(REFERENCE, {})
    (facts,) = seen
    assert facts.model == {}
    assert facts.forecast == {}
    assert facts.host == {"swappable": False}
    assert "taken" not in facts.hardware


def test_a_model_that_is_not_forecast_still_has_a_name(seen: list[Facts]) -> None:
    texts = {"config.json": json.dumps({"architectures": ["GptOssForCausalLM"]})}
    advised.advice(REFERENCE, {"model": {"texts": texts}})
    assert seen[0].model["family"] == "gpt-oss"
    assert seen[0].forecast == {}


def test_advisories_of_the_unit_and_the_cards() -> None:
    found = {one.id for one in advised.advice(REFERENCE, ANSWER)}
    assert {
        "kill-mode-leaves-schedulers",
        "gpu-memory-held-by-others",
        "hicache-cgroup-limit-not-seen",
        "swap-in-use",
        "no-custom-all-reduce-over-pcie",
    } <= found


@pytest.mark.parametrize(
    ("text", "number"), [("580.65.06", 580.65), ("550.54", 550.54), ("", None)]
)
def test_drivers(text: str, number: float | None) -> None:
    assert advised.driver(text) == number


LINES = (Path(__file__).parent / "dimensions/sizes.jsonl").read_text().splitlines()
SIZES = {one["model"]: one["config"] for one in map(json.loads, LINES)}
GEMMA = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}  # fmt: skip
DSA = {
    **json.loads(KIMI)["text_config"],
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "num_nextn_predict_layers": 1,
}  # fmt: skip
VISION, ROWS = "vision-lowers-the-default-fraction", "sparse-attention-pool-over-budget"
AITER, TABLE = "aiter-cuts-the-memory-fraction", "request-table-outside-the-budget"


@pytest.mark.parametrize(
    ("name", "config", "card", "flags", "told"),
    [
        (VISION, GEMMA, "H200", {}, False),  # the engine turns its images off by itself
        (VISION, GEMMA, "H200", {"enable-multimodal": True}, True),
        (VISION, json.loads(KIMI), "H200", {}, True),
        (VISION, json.loads(KIMI), "H200", {"mem-fraction-static": 0.9}, False),
        (ROWS, DSA, "H200", {"kv-cache-dtype": "fp8_e4m3"}, True),
        (ROWS, DSA, "H200", {}, False),
        (ROWS, DSA, "B200", {}, True),  # FP8 by itself
        (ROWS, DSA, "MI300X", {"kv-cache-dtype": "fp8_e4m3"}, False),  # rows without scales
        (AITER, SIZES["Qwen/Qwen3-32B"], "MI300X", {}, True),  # by itself, at the model's context
        (AITER, SIZES["Qwen/Qwen3-32B"], "MI300X", {"context-length": 8192}, False),
        (AITER, SIZES["Qwen/Qwen3-32B"], "H200", {}, False),
        (TABLE, SIZES["Qwen/Qwen3-32B"], "H200", {"context-length": 40960}, False),
        (
            TABLE,
            SIZES["meta-llama/Meta-Llama-3.1-8B"],
            "H200",
            {"max-running-requests": 2047},
            False,
        ),
        (TABLE, SIZES["meta-llama/Meta-Llama-3.1-8B"], "H200", {}, True),
    ],
)
def test_an_advisory_says_what_the_figures_say(
    name: str, config: dict[str, Any], card: str, flags: dict[str, Any], told: bool
) -> None:
    given = Given(gpus=8, gpu_name=card, ram_total=2000.0, ram_available=1900.0)
    entry = {
        "engine": {"version": "0.5.9"},
        "model": {"path": "/srv/models/X"},
        "flags": {"tp-size": 8, **flags},
    }
    asked = Question(
        "x", entry, offline(given, {"texts": {"config.json": json.dumps(config)}}, None)
    )
    assert (name in [one.id for one in outlook(asked).advisories]) is told
