"""What a service and its host tell the conditions of advisories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.engine.advisories import Facts
from opsctl.forecast import advised

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
