"""`--fit` as it is asked: the value that it gives is called "fits" by `--set` with all that it says
has to be set, and one step more is not. Over public models, releases, cards and flags."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl.errors import OpsctlError
from opsctl.forecast.fit import FITS, NOT, UNKNOWN
from opsctl.forecast.outlook import Outlook, outlook
from opsctl.forecast.question import Given, Question, offline
from opsctl.forecast.solve import CONTEXT, FRACTION, KNOBS, RATIO, SIZE, Solved, turned
from opsctl.forecast.told import solved_of
from opsctl.forecast.values import NoForecast
from opsctl.onhost.expect import GiB

SIZES = Path(__file__).parents[1] / "unit/forecast/dimensions/sizes.jsonl"
CONFIGS = {one["model"]: one["config"] for one in map(json.loads, SIZES.read_text().splitlines())}
CARDS = ("H100", "H200", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "L4", "MI300X")
VERSIONS = [f"0.5.{n}" for n in range(2, 24)]
# Each may be left out.
FLAGS: dict[str, list[Any]] = {
    FRACTION: [0.7, 0.85, 0.88, 0.95],
    "enable-hierarchical-cache": [True],
    RATIO: [1.5, 2.0, 4.0],
    SIZE: [10, 50],
    CONTEXT: [4096, 8192, 32768],
    "kv-cache-dtype": ["fp8_e4m3"],
    "page-size": [64],
    "max-running-requests": [16, 256],
}


@st.composite
def questions(draw: st.DrawFn) -> Question:
    ranks = draw(st.sampled_from([1, 2, 4, 8]))
    flags: dict[str, Any] = {"tp-size": ranks}
    for name, values in FLAGS.items():
        if draw(st.booleans()):
            flags[name] = draw(st.sampled_from(values))
    if ranks > 1 and draw(st.booleans()):
        flags |= {"enable-dp-attention": True, "dp-size": ranks}
    entry = {
        "engine": {"version": draw(st.sampled_from(VERSIONS))},
        "model": {"path": "/srv/models/X"},
        "flags": flags,
    }
    config = CONFIGS[draw(st.sampled_from(sorted(CONFIGS)))]
    host: dict[str, Any] = {
        "gpus": 8,
        "gpu_name": draw(st.sampled_from(CARDS)),
        "ram_total": 1024.0,
        "ram_available": float(draw(st.integers(50, 1000))),
    }
    return measured(entry, config, host, draw(st.sampled_from(["nothing", "free", "tokens"])))


def measured(entry: dict, config: dict, host: dict, known: str) -> Question:
    """With what a start of this description would have logged, as far as it is `known`."""
    asked = question(entry, config, host)
    try:
        case = asked.case()
        if known == "nothing" or case.weights is None or case.hardware.total is None:
            return asked
        before = case.hardware.total / GiB - 1.5
        host = {**host, "gpu_free_before": before}
        host["gpu_free_after"] = max(0.1, before - case.weights.value / GiB)
        asked = question(entry, config, host)
        tokens = outlook(asked).result.device.tokens
    except (NoForecast, OpsctlError):
        return asked
    if known == "free" or tokens is None or not tokens.value:
        return asked
    return question(entry, config, {**host, "gpu_tokens": tokens.value})


def question(entry: dict, config: dict, host: dict) -> Question:
    said = Given(**host)
    folder = {"texts": {"config.json": json.dumps(config)}}
    return Question("x", entry, offline(said, folder, None), said.calibration())


def fits(key: str, said: Outlook) -> bool:
    """By what the key changes: a tight GPU is as tight with any tier, and RAM with any context."""
    fit = said.result.fit
    if key in (RATIO, SIZE):
        return fit.ram == FITS and fit.gpu != NOT
    return fit.gpu == FITS and (key == CONTEXT or fit.ram in (FITS, UNKNOWN))


def asked_for(asked: Question, key: str) -> Solved | None:
    try:
        return solved_of(asked, key)
    except (NoForecast, OpsctlError):
        return None


SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.mark.parametrize("key", sorted(KNOBS))
@settings(max_examples=15, **SLOW)
@given(asked=questions())
def test_the_value_fits_and_the_next_does_not(key: str, asked: Question) -> None:
    found = asked_for(asked, key)
    if found is None or found.value is None:
        return
    assert found.sets[-1] == f"{key}={found.value:.10g}"
    try:
        said = outlook(asked, found.sets)
    except (NoForecast, OpsctlError):
        return  # what is refused whatever the value is: told in its place
    assert fits(key, said), said.result.fit
    assert said.result == found.result  # not even a figure differs
    assert outlook(replace(asked, sets=found.sets)).result == found.result  # as `--set` asks it
    if found.limits and found.limits[0].startswith(("more than", "the model itself")):
        return
    step = found.value + KNOBS[key].value(1)
    try:
        more = outlook(asked, (*found.sets[:-1], f"{key}={step:.10g}"))
    except (NoForecast, OpsctlError):
        return
    assert not fits(key, more), more.result.fit


@pytest.mark.parametrize("key", sorted(KNOBS))
@settings(max_examples=8, **SLOW)
@given(asked=questions())
def test_what_may_start_is_not_said_not_to_fit(key: str, asked: Question) -> None:
    found = asked_for(asked, key)
    if found is None or found.possible is None:
        return
    sets = (*turned(key, asked.asked().manifest["flags"]), f"{key}={found.possible:.10g}")
    try:
        fit = outlook(asked, sets).result.fit
    except (NoForecast, OpsctlError):
        return
    assert fit.gpu != NOT
    assert key == CONTEXT or fit.ram != NOT
