"""Recurrent state: slots by release, what they leave for KV, and requests at once."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.device import device
from opsctl.forecast.values import ESTIMATED, Device, NoForecast, NoStart
from tests.unit.forecast.device.cases import EAGLE, GiB, case, gqa, qwen35

SLOT = 48 * (48 * 128 * 128 * 4 + 10240 * 3 * 2)  # 0.1434 GiB: 48 layers, float32 state
CELL = 16 * 4 * 512 * 2
REST = 40.0
EXACT: dict[str, Any] = {"before": 78.0, "after": REST + 78.0 * 0.12, "exact": True, "card": "h100"}


def slots(found: Device) -> int:
    return next(pool.rows.value for pool in found.pools if pool.name == "mamba")


def test_a_slot_is_what_the_logs_say() -> None:
    """154 slots: 21.80 GiB of state and 0.43 of convolution, with a row to spare."""
    assert 155 * 48 * 48 * 128 * 128 * 4 / GiB == pytest.approx(21.80, abs=0.006)
    (found,) = device(case(qwen35(), **EXACT))
    (pool,) = (pool for pool in found.pools if pool.name == "mamba")
    assert pool.bytes_per_row == SLOT
    assert pool.bytes.value == (pool.rows.value + 1) * SLOT


BUDGET = REST * 0.9 / 1.9 * GiB
RULES = [  # release, flags, slots
    ("0.5.2", {}, 512 // 1),
    ("0.5.3.post1", {"max_running_requests": 64}, 64),
    ("0.5.3.post2", {}, int(BUDGET // SLOT)),
    ("0.5.6", {}, int(BUDGET // SLOT)),
    ("0.5.9", {}, int(BUDGET // SLOT)),
    ("0.5.16", {}, int(BUDGET // SLOT)),
    ("0.5.17", {}, int((BUDGET - SLOT) // SLOT)),
    ("0.5.23", {}, int((BUDGET - SLOT) // SLOT)),
    ("0.5.9", {"max_mamba_cache_size": 100}, 100),
    ("0.5.6", {"max_mamba_cache_size": 100}, int(BUDGET // SLOT)),  # not read yet
    ("0.5.9", {"disable_radix_cache": True, "max_running_requests": 64}, 64),
    ("0.5.9", {"mamba_full_memory_ratio": 0.5}, int(REST * 0.5 / 1.5 * GiB // SLOT)),
]


@pytest.mark.parametrize(("version", "flags", "expected"), RULES)
def test_slots_by_release(version: str, flags: dict[str, Any], expected: int) -> None:
    told = {**EXACT}
    if version == "0.5.2":
        told["after"] = 90.0
    (found,) = device(case(qwen35(), version, **told, **flags))
    assert slots(found) == expected


@pytest.mark.parametrize(("version", "spare"), [("0.5.9", 0), ("0.5.16", 0), ("0.5.23", 1)])
def test_kv_gets_what_the_slots_leave(version: str, spare: int) -> None:
    (found,) = device(case(qwen35(), version, **EXACT))
    assert found.tokens is not None
    left = REST * GiB - (slots(found) + spare) * SLOT
    assert found.tokens.value == int(left // CELL)
    assert (found.cell, found.charged) == (CELL, CELL)


D = 4
TRACKED = {"mamba_scheduler_strategy": "extra_buffer"}
SPECULATIVE = [  # release, flags, slots, states kept for draft tokens
    ("0.5.6", {}, int(BUDGET // SLOT // (1 + D)), None),
    ("0.5.9", TRACKED, int((REST * GiB - SLOT * 8 * D) * 0.9 / 1.9 // SLOT), 8 * D),
    ("0.5.9", {}, 8, 8 * D),  # keeps no prefixes under speculation: a slot a request
    ("0.5.13", {}, int(BUDGET // (SLOT * (1 + D / 3))), 8 * D),
    ("0.5.23", {}, int((BUDGET - SLOT * (1 + D)) // (SLOT * (1 + D / 5))), 9 * D),
]


@pytest.mark.parametrize(("version", "flags", "expected", "kept"), SPECULATIVE)
def test_draft_tokens_have_states_of_their_own(
    version: str, flags: dict[str, Any], expected: int, kept: int | None
) -> None:
    draft = gqa(1, 4, 256, counted=0)
    asked = case(qwen35(), version, draft=draft, max_running_requests=8, **EXACT, **EAGLE, **flags)
    (found,) = device(asked)
    assert slots(found) == expected
    spare = 1 if version == "0.5.23" else 0
    each = SLOT * (1 + D) if kept is None else SLOT
    left = REST * GiB - (expected + spare) * each - (kept or 0) * SLOT
    assert found.tokens is not None
    more = 8 * (3 + 4) + 100 if version == "0.5.6" else 0
    assert found.tokens.value == int(left // CELL) + more


@pytest.mark.parametrize(
    ("version", "flags", "each"),
    [
        ("0.5.6", {}, 3),
        ("0.5.7", {}, 5),  # an extra buffer is reckoned with even where there is none
        ("0.5.9", {}, 3),
        ("0.5.9", {"mamba_scheduler_strategy": "extra_buffer"}, 5),
        ("0.5.13", {"mamba_scheduler_strategy": "extra_buffer_lazy"}, 4),
        ("0.5.14", {}, 5),  # the extra buffer is the default
        ("0.5.23", {"mamba_radix_cache_strategy": "no_buffer"}, 3),
        ("0.5.23", {"disable_radix_cache": True, "max_mamba_cache_size": 60}, 1),
    ],
)
def test_requests_at_once(version: str, flags: dict[str, Any], each: int) -> None:
    (found,) = device(case(qwen35(), version, **EXACT, **flags))
    assert found.max_running == min(slots(found) // each, 2048)


def test_an_earlier_starts_tokens_tell_the_slots_within_two() -> None:
    """Qwen3.5-27B FP8 on an H100: 330,323 tokens stood beside 124 slots."""
    (found,) = device(case(qwen35(), "0.5.23", before=None, after=None, total=False, tokens=330323))
    (pool,) = (pool for pool in found.pools if pool.name == "mamba")
    assert pool.rows.basis == ESTIMATED
    assert pool.rows.least is not None and pool.rows.most is not None
    assert pool.rows.least <= 124 <= pool.rows.most
    assert pool.rows.most - pool.rows.least <= 5


def test_a_half_of_the_state_in_bfloat16() -> None:
    (found,) = device(case(qwen35(), "0.5.23", mamba_ssm_dtype="bfloat16", **EXACT))
    (pool,) = (pool for pool in found.pools if pool.name == "mamba")
    assert pool.bytes_per_row == 48 * (48 * 128 * 128 * 2 + 10240 * 3 * 2)


def test_state_is_split_over_the_ranks_that_heads_are() -> None:
    (found,) = device(case(qwen35(), "0.5.23", tp_size=4, **EXACT))
    (pool,) = (pool for pool in found.pools if pool.name == "mamba")
    assert pool.bytes_per_row == SLOT // 4
    with pytest.raises(NoForecast, match="do not divide"):
        device(case(qwen35(), "0.5.23", tp_size=5, **EXACT))


def test_no_room_for_state_is_no_start() -> None:
    with pytest.raises(NoStart, match="recurrent state"):
        device(case(qwen35(), "0.5.23", before=78.0, after=78 * 0.12 + 0.2, card="h100"))
