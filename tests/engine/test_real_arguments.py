"""What the engine makes of unset arguments on a card that is only said to be there, and what we
say it makes: fraction, page, attention backends, KV dtype.

The real ServerArgs of 0.5.9 and 0.5.23 judge. Where we refuse by name, that is counted: only what
is listed may be refused.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.device.backend import attention
from opsctl.forecast.device.dtype import kv_dtype
from opsctl.forecast.device.fraction import effective_fraction
from opsctl.forecast.device.page import page
from opsctl.forecast.device.settings import settings
from opsctl.forecast.refused import refuse
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import Case, Hardware, Measured, NoForecast, NoStart
from tests.engine.drawn_arguments import arguments, drawn

pytestmark = [pytest.mark.cpu_engine, pytest.mark.timeout(900)]

JUDGE = Path(__file__).with_name("arguments_judge.py")
CONFIGS = Path(__file__).resolve().parents[1] / "unit/forecast/datapoints/configs"
MiB = 1 << 20
CARDS: dict[str, tuple[int, tuple[int, int], str]] = {
    "4090": (24564, (8, 9), "nvidia"),
    "l40s": (46068, (8, 9), "nvidia"),
    "h100": (81559, (9, 0), "nvidia"),
    "rtxpro": (97887, (12, 0), "nvidia"),
    "h200": (143771, (9, 0), "nvidia"),
    "b200": (183359, (10, 0), "nvidia"),
    "mi355x": (294896, (9, 5), "amd"),
}
MODELS = (
    "llama-3.1-8b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "kimi-k2.5",
    "glm-5",
    "glm-4.7-flash",
    "mimo-v2-flash",
    "nemotron-nano-9b-v2",
    "qwen3.5-27b",
    "lfm2-700m",
)
# Drawn from besides, with fields of config.json as published.
PUBLISHED = CONFIGS.parents[1] / "dimensions/sizes.jsonl"
MORE = (
    "MiniMaxAI/MiniMax-M2.7",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "Qwen/Qwen3-VL-8B-Instruct",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "zai-org/GLM-4.5-Air",
)
SEED, DRAWN = 20, 75
EAGLE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
ARGS: tuple[dict[str, Any], ...] = (
    {"tp_size": 8},
    {"tp_size": 1},
    {"tp_size": 4, "pp_size": 2},
    {"tp_size": 8, "page_size": 64},
    {"tp_size": 8, "mem_fraction_static": 0.8},
    {"tp_size": 8, "chunked_prefill_size": 2048, "max_running_requests": 64},
    {"tp_size": 8, "enable_hierarchical_cache": True},
    {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
    {"tp_size": 8, **EAGLE},
)
OF_H100 = (ARGS[2], ARGS[6])  # with pipeline stages, with HiCache
NAMES = {"bf16": "bfloat16"}
# Of the cases above, those of which we say nothing at all.
REFUSED = 0


@cache
def config(model: str) -> dict[str, Any]:
    if "/" not in model:
        found: dict[str, Any] = json.loads((CONFIGS / f"{model}.json").read_text())
        return found
    held = (json.loads(line) for line in PUBLISHED.read_text().splitlines())
    return next(dict(one["config"]) for one in held if one["model"] == model)


def question(model: str, card: str, args: dict[str, Any]) -> dict[str, Any]:
    mib, capability, vendor = CARDS[card]
    return {
        "model": model,
        "card": card,
        "config": config(model),
        "args": args,
        "mib": mib,
        "capability": capability,
        "vendor": vendor,
    }


def asked() -> list[dict[str, Any]]:
    return [
        question(model, card, args)
        for model in MODELS
        for card in CARDS
        for args in (ARGS if card == "b200" else OF_H100 if card == "h100" else ARGS[:1])
    ]


def asked_at_random(version: str) -> list[dict[str, Any]]:
    """The same every time, so that a fault stays found."""
    dice, models = random.Random(SEED), (*MODELS, *MORE)
    return [
        question(dice.choice(models), dice.choice(list(CARDS)), arguments(flags))
        for flags in drawn(DRAWN, version, SEED)
    ]


def answers(python: Path, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(one) + "\n" for one in questions)
    done = subprocess.run(
        [python, JUDGE], input=lines, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def case(one: dict[str, Any], version: str) -> Case:
    flags = {name.replace("_", "-"): value for name, value in one["args"].items()}
    hardware = Hardware(
        8, (one["card"],), one["mib"] * MiB, tuple(one["capability"]), one["vendor"]
    )
    shape = geometry(json.dumps(one["config"]), None, version)
    ranks = tuple(f"TP{n}" for n in range(one["args"]["tp_size"]))
    return Case(version, flags, {}, ranks, shape, None, hardware, None, Measured(), None, None, 0)


def ours(made: Case) -> dict[str, Any]:
    set_ = settings(made)
    backends = attention(made, set_)
    if backends is None:
        raise NoForecast("which backend is not known")
    return {
        "fraction": round(effective_fraction(made, set_), 9),
        "page": page(made),
        "backend": backends[0],
        "dtype": NAMES.get(found := kv_dtype(made, set_)[0], found),
    }


def theirs(answer: dict[str, Any]) -> dict[str, Any]:
    # Decode's own, that HiCache takes on Hopper to 0.5.13, decides none of the rest.
    chosen = answer["prefill_attention_backend"] or answer["attention_backend"]
    return {
        "fraction": round(answer["mem_fraction_static"], 9),
        "page": answer["page_size"],
        "backend": "dsa" if chosen == "nsa" else chosen,
        "dtype": NAMES.get(answer["kv_cache_dtype"], answer["kv_cache_dtype"]),
    }


def compare(
    questions: list[dict[str, Any]], version: str, python: Path
) -> tuple[list[Any], int, int]:
    """(what differs, how many were compared, how many we say nothing of)."""
    wrong, refused, compared = [], 0, 0
    for one, answer in zip(questions, answers(python, questions), strict=True):
        if "error" in answer:
            continue  # the engine refuses these arguments with this model
        try:
            made = case(one, version)
        except NoForecast:
            continue  # this release does not run the model, or we do not tell its geometry
        try:
            refuse(made)
            found = ours(made)
        except NoStart:
            continue  # what a later step of the engine refuses: no figures are told then
        except NoForecast:
            refused += 1
            continue
        compared += 1
        if found != theirs(answer):
            wrong.append((one["model"], one["card"], one["args"], found, theirs(answer)))
    return wrong, compared, refused


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_what_the_engine_chooses(version: str, cpu_engine: Callable[[str], Path]) -> None:
    python = cpu_engine(version) / "bin" / "python"
    wrong, compared, refused = compare(asked(), version, python)
    assert not wrong, wrong[:5]
    assert compared > 120
    assert refused == REFUSED


@pytest.mark.parametrize("version", ["0.5.9", "0.5.23"])
def test_what_it_chooses_under_arguments_drawn_at_random(
    version: str, cpu_engine: Callable[[str], Path]
) -> None:
    python = cpu_engine(version) / "bin" / "python"
    wrong, compared, refused = compare(asked_at_random(version), version, python)
    assert not wrong, wrong[:5]
    assert compared > 30
    assert refused <= 2
