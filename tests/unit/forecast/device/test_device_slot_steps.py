"""A slot of recurrent state more leaves less for KV: the band holds all between its edges."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.shape import geometry
from opsctl.forecast.values import Case, Hardware, Measured

GiB = 1 << 30
CONFIGS = Path(__file__).parents[1] / "configs"
NAMES = (
    "Qwen3-Next-80B-A3B",
    "Qwen3.5-122B-A10B",
    "Qwen3.5-397B-A17B",
    "NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
    "class-falcon_h1",
)


def case(name: str, version: str, after: int, *, exact: bool = False, **flags: object) -> Case:
    text = json.dumps(json.loads((CONFIGS / f"{name}.json").read_text())["config"])
    return Case(
        version=version,
        flags={"tp-size": 4, "mem-fraction-static": 0.85, **flags},
        env={},
        ranks=("TP0", "TP1", "TP2", "TP3"),
        shape=geometry(text, None, version),
        draft=None,
        hardware=Hardware(4, ("NVIDIA H100 80GB HBM3",) * 4, 80 * GiB, (9, 0)),
        memory=None,
        measured=Measured(free_before=int(78.4 * GiB), free_after=after, exact=exact),
        weights=None,
        draft_weights=None,
        min_available=0,
    )


@pytest.mark.parametrize("version", ["0.5.9", "0.5.14", "0.5.23"])
@pytest.mark.parametrize("name", NAMES)
def test_the_band_holds_every_value_within(name, version):
    for start in range(0, 120, 7):
        after = int((38 + start / 40) * GiB)
        asked = case(name, version, after)
        (found,) = device(asked)
        tokens = found.tokens
        assert tokens is not None
        assert tokens.least <= tokens.value <= tokens.most
        for shift in range(-5, 6):
            moved = replace(asked.measured, free_after=after + shift * GiB // 1000, exact=True)
            (seen,) = device(replace(asked, measured=moved))
            assert seen.tokens is not None
            assert tokens.least <= seen.tokens.value <= tokens.most, shift


def test_caps_hold_in_the_band_too():
    (found,) = device(
        case("Qwen3-Next-80B-A3B", "0.5.23", 38 * GiB, **{"max-total-tokens": 100_000})
    )
    assert (found.tokens.least, found.tokens.value, found.tokens.most) == (100_000,) * 3
