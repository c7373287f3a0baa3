"""What is told beside a refusal, and that a verdict names its cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.document import answer
from opsctl.forecast.question import Given, Question, offline
from opsctl.forecast.told import Told, Wish, end, tell

SIZES = Path(__file__).parent / "dimensions/sizes.jsonl"
CONFIGS = {one["model"]: one["config"] for one in map(json.loads, SIZES.read_text().splitlines())}
V4 = Path(__file__).parent / "configs/DeepSeek-V4-Flash.json"
TIER = {"enable-hierarchical-cache": True, "hicache-ratio": 4.0}


def told(
    config: Any, flags: dict[str, Any], version: str, wish: Wish | None = None, **given: Any
) -> Told:
    entry = {"engine": {"version": version}, "model": {"path": "/srv/models/X"}, "flags": flags}
    folder = {"texts": {"config.json": json.dumps(config)}}
    told = Given(**{"gpu_name": "H100", "ram_total": 1000.0, "ram_available": 1000.0, **given})
    question = Question("x", entry, offline(told, folder, None), told.calibration())
    return tell(question, wish or Wish())


def test_advisories_are_listed_where_there_is_no_room() -> None:
    found = told(CONFIGS["meta-llama/Meta-Llama-3.1-70B"], TIER, "0.5.9")
    assert found.outlook is None and found.cramped
    said = answer(found)
    ids = {one["id"] for one in said["advisories"]}
    fits = told(CONFIGS["meta-llama/Meta-Llama-3.1-8B"], TIER, "0.5.9")
    assert fits.outlook is not None
    assert ids & {one.id for one in fits.outlook.advisories}  # what does not ask for figures
    assert any("config.json's dimensions" in note for note in said["notes"])
    over = end([found])
    assert over is not None and "tp-size" in str(over.hint)  # no fraction would do


def test_advisories_are_listed_where_the_model_is_refused_by_name() -> None:
    held = json.loads(V4.read_text())["config"]
    found = told(held, {"tp-size": 8, **TIER}, "0.5.23")
    assert found.outlook is None and found.refused
    assert answer(found)["advisories"]


def test_advisories_are_listed_where_flags_are_refused() -> None:
    config = CONFIGS["meta-llama/Meta-Llama-3.1-8B"]
    found = told(config, {**TIER, "attention-backend": "flashmla"}, "0.5.9")
    assert found.unfit and answer(found)["advisories"]


def test_the_verdict_names_the_table_of_requests() -> None:
    """2,048 requests × 10,485,760 tokens × 4 B."""
    config = CONFIGS["meta-llama/Llama-4-Scout-17B-16E-Instruct"]
    (reason,) = told(config, {"tp-size": 8}, "0.5.23").reasons
    assert "the table of requests alone takes 80.00 GiB" in reason and "context-length" in reason


@pytest.mark.parametrize("context", [8192, 131072])
def test_and_does_not_where_it_is_not_the_cause(context: int) -> None:
    config = CONFIGS["meta-llama/Llama-4-Scout-17B-16E-Instruct"]
    found = told(config, {"tp-size": 8, "context-length": context}, "0.5.23")
    assert not any("table of requests" in reason for reason in found.reasons)


def test_no_token_by_the_best_estimate_does_not_fit() -> None:
    """Only the lucky edge of the band leaves a few thousand tokens."""
    config = CONFIGS["meta-llama/Meta-Llama-3.1-8B"]
    found = told(config, {"context-length": 8192}, "0.5.23", gpu_name="L4", gpus=1)
    assert found.outlook is not None and found.outlook.result.device.tokens is not None
    assert found.outlook.result.device.tokens.value == 0
    assert "default-fraction-cannot-start" in {one.id for one in found.outlook.advisories}
    assert found.verdict == "does not fit" and "by the best estimate" in found.reasons[0]
    ended = end([found])
    assert ended is not None
    assert str(ended.hint).startswith("--fit mem-fraction-static tells the largest value that may")


def test_no_fraction_is_one_truth() -> None:
    """DeepSeek-V3 on eight H100: 79.87 GiB of weights of 77.65."""
    config, version = CONFIGS["deepseek-ai/DeepSeek-V3"], "0.5.9"
    flags = {"tp-size": 8, "mem-fraction-static": 0.9}
    found = told(config, flags, version, wish=Wish("mem-fraction-static"), gpus=8)
    assert "no fraction is enough" in found.refused
    assert found.solved is not None
    assert (found.solved.value, found.solved.possible) == (None, None)


@pytest.mark.parametrize("key", ["intermediate_size", "hidden_size", "vocab_size"])
def test_a_size_that_is_missing_is_named(key: str) -> None:
    config = dict(CONFIGS["Qwen/Qwen3-32B"])
    del config[key]
    found = told(config, {"tp-size": 2}, "0.5.9", gpus=2)
    assert found.outlook is not None
    assert any(f"lacks {key}" in note for note in found.outlook.notes)
    measured = told(config, {}, "0.5.9", gpus=2, gpu_free_before=78.0, gpu_free_after=40.0)
    assert measured.outlook is not None
    assert not any("lacks" in note for note in measured.outlook.notes)


@pytest.mark.parametrize(("limit", "noted"), [(9_000_000, True), (1000, False)])
def test_a_limit_of_tokens_without_effect_is_told(limit: int, noted: bool) -> None:
    config = CONFIGS["Qwen/Qwen3-32B"]
    found = told(config, {"tp-size": 2, "max-total-tokens": limit}, "0.5.9", gpus=2)
    assert found.outlook is not None
    assert (
        any("max-total-tokens 9,000,000 has no effect" in n for n in found.outlook.notes) is noted
    )
