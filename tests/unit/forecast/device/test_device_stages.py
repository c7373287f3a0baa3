"""Pipeline stages, requests at once, and what a host is told of a world that spans several."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.values import NoForecast
from tests.unit.forecast.device.cases import EAGLE, GiB, case, gqa, mla

BOTH = ("PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1")


@pytest.mark.parametrize(
    ("version", "layers", "stages"),
    [
        ("0.5.9", 61, (30, 31)),
        ("0.5.6", 61, (30, 31)),
        ("0.5.5.post3", 61, (30, 31)),
        ("0.5.9", 62, (20, 21, 21)),
        ("0.5.5.post3", 62, (20, 20, 22)),
    ],
)
def test_layers_left_over_go_to_the_last_stages(
    version: str, layers: int, stages: tuple[int, ...]
) -> None:
    """To the very last one up to 0.5.5.post3."""
    names = tuple(f"PP{n} TP0" for n in range(len(stages)))
    found = device(case(mla(layers), version, pp_size=len(stages), ranks=names))
    assert [one.cell // 1152 for one in found] == list(stages)
    assert [one.stage for one in found] == list(range(len(stages)))


def test_tokens_are_the_least_of_the_world_and_sizes_each_stages_own() -> None:
    first, last = device(case(mla(61), pp_size=2, tp_size=2, ranks=BOTH, exact=True))
    assert first.tokens is not None and first.rest is not None
    assert first.tokens == last.tokens
    assert first.tokens.value == first.rest.value // (31 * 1152)
    assert first.pools[0].bytes_per_row == 30 * 1152


def test_a_host_hears_of_its_own_stages_but_of_the_worlds_tokens() -> None:
    (found,) = device(case(mla(61), pp_size=2, ranks=("PP0 TP0",), exact=True))
    assert found.stage == 0 and found.tokens is not None and found.rest is not None
    assert found.tokens.value == found.rest.value // (31 * 1152)


def test_a_partition_by_hand() -> None:
    env = {"SGLANG_PP_LAYER_PARTITION": "40,21"}
    found = device(case(mla(61), pp_size=2, ranks=BOTH, env=env))
    assert [one.cell // 1152 for one in found] == [40, 21]


@pytest.mark.parametrize("text", ["40,20", "61", "a,b"])
def test_a_partition_that_does_not_add_up_is_refused(text: str) -> None:
    with pytest.raises(NoForecast, match="SGLANG_PP_LAYER_PARTITION"):
        device(case(mla(61), pp_size=2, ranks=BOTH, env={"SGLANG_PP_LAYER_PARTITION": text}))


CAPS = [  # release, context, flags, requests
    ("0.5.9", 131072, {}, 2048),
    ("0.5.9", 4096, {}, 4096),  # 85,000 tokens / 4,096 × 512 is above the most
    ("0.5.9", 131072, {"max_running_requests": 3000}, 3000),
    ("0.5.10", 131072, {"max_running_requests": 3000}, 2048),
    ("0.5.14", 131072, {"max_running_requests": 3000}, 3000),
    (
        "0.5.9",
        131072,
        {"max_running_requests": 64, "tp_size": 8, "dp_size": 4, "enable_dp_attention": True},
        16,
    ),
    ("0.5.9", 131072, EAGLE, 48),
    ("0.5.23", 131072, EAGLE, 48),
    ("0.5.23", 131072, {"max_total_tokens": 100}, 50),
    ("0.5.9", 131072, {"max_total_tokens": 100}, 50),
]


@pytest.mark.parametrize(("version", "context", "flags", "expected"), CAPS)
def test_requests_at_once(version: str, context: int, flags: dict[str, Any], expected: int) -> None:
    asked = case(
        gqa(32, 8, 128, context=context), version, draft=gqa(1, 8, 128), exact=True, **flags
    )
    (found,) = device(asked)
    assert found.max_running == expected


def test_context_length_wins_over_the_models_own() -> None:
    (found,) = device(case(gqa(32, 8, 128), context_length=4096))
    assert found.max_running == 4096


def test_requests_are_not_told_without_a_context() -> None:
    (found,) = device(case(gqa(32, 8, 128, context=None)))
    assert found.max_running is None


def test_a_pool_has_a_page_more_than_its_rows() -> None:
    (found,) = device(case(gqa(32, 8, 128), page_size=64))
    (pool,) = found.pools
    assert pool.rows.value % 64 == 0
    assert pool.bytes.value == (pool.rows.value + 64) * 131072
    assert pool.bytes.value < 11 * GiB
