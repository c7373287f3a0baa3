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
def asked_of(draw: st.DrawFn) -> tuple[dict, dict, dict]:
    """A description, a config.json and what is known of the host."""
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
    return entry, config, host


@st.composite
def questions(draw: st.DrawFn) -> Question:
    entry, config, host = draw(asked_of())
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


@st.composite
def elsewhere(draw: st.DrawFn) -> tuple[str, Question]:
    """A key that divides the GPU's memory, and a question whose tokens were measured under another
    value of it (None: unset), or the same: typed, logged by a journal, or recorded by a start."""
    key, there = draw(st.sampled_from(MEASURED))
    entry, config, host = draw(asked_of())
    first = dict(entry["flags"]) | {key: there}
    if there is None:
        del first[key]
    described = {**entry, "flags": first}
    known = measured(described, config, host, "tokens")
    typed = {**known.calibration}
    tokens = typed.pop("kv_tokens", None)
    now = entry["flags"].get(key)
    sets = (f"{key}={'null' if now is None else now}",)
    by = draw(st.sampled_from(["typed", "journal", "start"]))
    if tokens is None or by == "typed":
        return key, replace(known, sets=sets)
    manifest = known.asked().manifest
    bare = replace(known, calibration=draw(st.sampled_from([typed, {}])), sets=sets)
    if by == "journal":
        return key, replace(bare, journal=logged(manifest, tokens, typed))
    return key, replace(bare, facts={**known.facts, "starts": [recorded(manifest, tokens, typed)]})


MEASURED = [
    *((FRACTION, value) for value in (None, 0.85, 0.87, 0.879, 0.88, 0.92)),
    *((CONTEXT, value) for value in (None, 1024, 2048, 8192)),
]


def logged(manifest: Any, tokens: int, memory: dict[str, int]) -> str:
    """A journal of a start with the manifest's flags."""
    flags = {name.replace("-", "_"): value for name, value in manifest["flags"].items()}
    flags = {"model_path": "/srv/models/X", "context_length": None, **flags}
    arguments = ", ".join(f"{name}={value!r}" for name, value in flags.items())
    lines = [f"[2026-11-20 10:00:00] server_args=ServerArgs({arguments})"]
    before, after = (memory[f"gpu_free_{when}"] / GiB for when in ("before", "after"))
    for rank in manifest["ranks"]:
        lines += [
            f"[2026-11-20 10:00:09 {rank}] Load weight begin. avail mem={before:.2f} GB",
            f"[2026-11-20 10:00:20 {rank}] Load weight end. type=X, dtype=torch.bfloat16, "
            f"avail mem={after:.2f} GB, mem usage={before - after:.2f} GB.",
            f"[2026-11-20 10:00:21 {rank}] KV Cache is allocated. #tokens: {tokens}, K size: 1.00 "
            "GB, V size: 1.00 GB",
        ]
    return "\n".join((*lines, "[2026-11-20 10:00:30] The server is fired up and ready to roll!"))


def recorded(manifest: Any, tokens: int, memory: dict[str, int]) -> dict[str, Any]:
    rank = {
        "kv_tokens": tokens,
        "free_before_weights": memory["gpu_free_before"],
        "free_after_weights": memory["gpu_free_after"],
    }
    return {
        "gpu_key": manifest["gpu_key"],
        "model": dict(manifest["model"]),
        "engine_version": manifest["engine"]["version"],
        "gpus": manifest.get("gpus"),
        "flags": dict(manifest["flags"]),
        "ranks": dict.fromkeys(manifest["ranks"], rank),
    }


SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@pytest.mark.parametrize("key", sorted(KNOBS))
@settings(max_examples=15, **SLOW)
@given(asked=questions())
def test_the_value_fits_and_the_next_does_not(key: str, asked: Question) -> None:
    held(key, asked)


@settings(max_examples=60, **SLOW)
@given(asked=elsewhere())
def test_tokens_hold_for_the_value_alone_that_they_were_measured_at(
    asked: tuple[str, Question],
) -> None:
    held(*asked)


def held(key: str, asked: Question) -> None:
    """The value fits as `--set` asks it, and one step more does not."""
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
