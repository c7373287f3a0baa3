"""What is offered after "does not fit" was asked of the forecast, and helps."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.fit import NOT
from opsctl.forecast.outlook import outlook
from opsctl.forecast.question import Given, Question, offline
from opsctl.forecast.told import Wish, end, solved_of, tell

LINES = (Path(__file__).parent / "dimensions/sizes.jsonl").read_text().splitlines()
CONFIGS = {one["model"]: one["config"] for one in map(json.loads, LINES)}
TIER = {"enable-hierarchical-cache": True, "hicache-ratio": 2.0}
NO_TIER = "--set enable-hierarchical-cache=null --set hicache-ratio=null would start"
LESS = "each rank must hold less: more ranks, or a checkpoint of fewer bits"


def question(model: str, flags: dict[str, Any], version: str = "0.5.9", **given: Any) -> Question:
    entry = {"engine": {"version": version}, "model": {"path": "/srv/models/X"}, "flags": flags}
    said = Given(**{"gpu_name": "H100", "ram_total": 256.0, "ram_available": 250.0, **given})
    folder = {"texts": {"config.json": json.dumps(CONFIGS[model])}}
    return Question("x", entry, offline(said, folder, None), said.calibration())


def hint(asked: Question, wish: Wish | None = None) -> str:
    error = end([tell(asked, wish or Wish())])
    assert error is not None and error.exit_code == 8
    return str(error.hint)


CASES = [
    # the tier is refused for what has a window of its own: no ratio and no fraction helps
    ("openai/gpt-oss-120b", {"tp-size": 1, **TIER}, {"gpus": 1}),
    ("openai/gpt-oss-120b", {"tp-size": 2, **TIER}, {"gpus": 2}),
    # RAM
    ("Qwen/Qwen3-32B", {"tp-size": 2, **TIER}, {"ram_total": 64.0, "ram_available": 60.0}),
    ("Qwen/Qwen3-32B", {"tp-size": 2, "enable-hierarchical-cache": True, "hicache-size": 300}, {}),
    # weights
    ("meta-llama/Meta-Llama-3.1-70B", {}, {}),
    ("Qwen/Qwen3-32B", {"tp-size": 1, "mem-fraction-static": 0.7}, {"gpus": 1}),
    ("Qwen/Qwen3-32B", {"tp-size": 1, "mem-fraction-static": 0.995}, {"gpus": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "flags", "given"), CASES)
def test_what_is_offered_helps(model: str, flags: dict[str, Any], given: dict[str, Any]) -> None:
    asked = question(model, flags, **given)
    assert hint(asked)
    for one in hint(asked).split("; or "):
        words = shlex.split(one)
        if words[0] == "--fit":
            found = solved_of(asked, words[1])
            best = found.sets or (f"{words[1]}={found.possible}",)
            assert outlook(asked, best).verdict != NOT
        else:
            sets = [word for word in words if "=" in word]
            assert (
                words[-1] == "start"
                and words[:1] == ["--set"]
                and outlook(asked, sets).verdict != NOT
            )


def test_no_ratio_is_offered_to_what_the_engine_refuses_with_any() -> None:
    asked = question("openai/gpt-oss-120b", {"tp-size": 1, **TIER}, gpus=1)
    assert hint(asked) == hint(asked, Wish("hicache-ratio")) == NO_TIER


def test_ranks_are_offered_where_there_are_cards() -> None:
    assert "--set tp-size=4 would start" in hint(question("meta-llama/Meta-Llama-3.1-70B", {}))
    assert hint(question("meta-llama/Meta-Llama-3.1-70B", {}, gpus=1)) == LESS


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        ({"tp-size": 8, "pp-size": 2}, 4),  # of eight cards
        ({"tp-size": 3, "mem-fraction-static": 0.93}, 1),  # 64 heads do not divide by 3, nor by 6
    ],
)
def test_fewer_ranks_where_there_are_too_many(flags: dict[str, Any], ranks: int) -> None:
    asked = question("Qwen/Qwen3-32B", flags, gpus=8)
    assert hint(asked) == f"--set tp-size={ranks} would start"


def test_a_value_that_was_told_is_not_offered_again() -> None:
    asked = question("Qwen/Qwen3-32B", {"tp-size": 1, "mem-fraction-static": 0.7}, gpus=1)
    assert tell(asked, Wish("mem-fraction-static")).solved.value is not None  # type: ignore[union-attr]
    assert hint(asked, Wish("mem-fraction-static")) == ""
