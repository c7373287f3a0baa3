"""Every architecture is answered or refused by name; the table in docs/ is what the files give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.shape.registry import FIRST
from opsctl.forecast.values import Case, Geometry, Hardware, Latent, Measured, NoForecast
from tests.unit.forecast.models_table import DOC, _row, cases, document, shape

LOGGED = {  # bytes per token and rank at TP8 (TP1 where marked), as public logs confirm them
    "moonshotai/Kimi-K2.5": 70272,
    "deepseek-ai/DeepSeek-V3": 70272,
    "Qwen/Qwen3-235B-A22B": 48128,
    "MiniMaxAI/MiniMax-M2.5": 31744,
    "meta-llama/Meta-Llama-3.1-405B": 64512,
}


def test_the_table_is_what_the_files_give() -> None:
    assert DOC.read_text("utf-8") == document(), (
        "stale: run `python -m tests.unit.forecast.models_table`"
    )


def test_many_architectures_are_answered() -> None:
    answered, refused = set(), set()
    for held in cases():
        name = held["config"]["architectures"][0]
        try:
            shape(held)
            answered.add(name)
        except NoForecast as reason:
            assert name in str(reason)
            refused.add(name)
    assert len(answered) >= 55
    assert len(answered | refused) >= 65


def test_every_file_names_its_source() -> None:
    for held in cases():
        assert set(held) <= {"model", "source", "config", "hf_quant_config"}
        assert held["model"] and held["source"]


@pytest.mark.parametrize("name", sorted(LOGGED))
def test_bytes_per_token_that_public_logs_confirm(name: str) -> None:
    held = next(one for one in cases() if one["model"] == name)
    assert cell(shape(held), 8) == LOGGED[name]


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("held", cases(), ids=lambda held: held["model"])
def test_the_device_takes_what_the_table_says(held: dict[str, Any], ranks: int) -> None:
    """The table's own sum and the forecast's, where every layer keeps every token."""
    try:
        found = shape(held)
        sized = cell(found, ranks)
    except NoForecast:
        return
    if not found.window and not found.indexer:
        element = 1 if found.kv_fp8 else found.element
        assert sized == len(found.full) * _row(found.attention, ranks) * element


def cell(found: Geometry, ranks: int) -> int:
    flags = {"tp-size": ranks, "attention-backend": "triton", "page-size": 1}
    case = Case(
        version="0.5.23",
        flags={**flags, "mem-fraction-static": 0.8},
        env={},
        ranks=tuple(f"TP{rank}" for rank in range(ranks)),
        shape=found,
        draft=None,
        hardware=Hardware(ranks, ("NVIDIA H200",) * ranks, 150 << 30, (9, 0)),
        memory=None,
        measured=Measured(),
        weights=None,
        draft_weights=None,
        min_available=0,
    )
    return device(case)[0].cell


@pytest.mark.parametrize("architecture", sorted(FIRST))
def test_no_architecture_is_answered_without_its_fields(architecture: str) -> None:
    """A bare file is refused by name: no default of ours stands in for what a model has."""
    with pytest.raises(NoForecast, match=architecture):
        shape({"config": {"architectures": [architecture]}})


@pytest.mark.parametrize("architecture", sorted(FIRST))
def test_no_architecture_is_answered_before_it_runs(architecture: str) -> None:
    if FIRST[architecture] == "0.5.2":
        return
    with pytest.raises(NoForecast, match=architecture):
        shape({"config": {"architectures": [architecture]}}, "0.5.2")


def test_a_latent_file_of_an_unknown_kind_is_refused() -> None:
    config = {"architectures": ["Qwen3ForCausalLM"], "kv_lora_rank": 512, "num_hidden_layers": 2}
    with pytest.raises(NoForecast, match="not known to run with MLA"):
        shape({"config": config})
    assert isinstance(shape({"config": json.loads(json.dumps(MLA))}).attention, Latent)


MLA = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_hidden_layers": 2,
}
