"""The engine's test of host memory, played out: ranks take their pools in any order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from opsctl.forecast.host import races
from opsctl.forecast.host.memory import RESERVE
from opsctl.forecast.host.sizing import by_ratio, followed, power_of_two
from opsctl.forecast.host.sizing import given as ratio_of
from opsctl.forecast.values import (
    COMPUTED,
    Case,
    Figure,
    Geometry,
    Hardware,
    HostMemory,
    Latent,
    Measured,
)

GIB = 1 << 30
VERSIONS = ("0.5.9", "0.5.18", "0.5.19", "0.5.23")
SHAPE = Geometry("", 1, Latent(512, 64), (0,))


def case(version: str, ranks: int, available: int) -> Case:
    """Processes are measured and take nothing: what is free is known exactly."""
    names = tuple(f"TP{n}" for n in range(ranks))
    memory = HostMemory(2 * available, available)
    measured = Measured(process=0)
    return Case(version, {}, {}, names, SHAPE, None, Hardware(), memory, measured, None, None, 0)


def starts(version: str, ranks: list[tuple[int, ...]], free: int, order: random.Random) -> bool:
    """One start in which any rank may go on at any time."""
    left, taken = [list(sizes) for sizes in ranks], 0
    while any(left):
        rank = order.choice([n for n, sizes in enumerate(left) if sizes])
        size = left[rank].pop(0)
        seen = free - taken - RESERVE
        if version in ("0.5.19", "0.5.23"):
            seen //= len(ranks)
        if size > seen:
            return False
        taken += size
    return True


@given(
    st.sampled_from(VERSIONS),
    st.integers(1, 8),
    st.lists(st.integers(1, 80 * GIB), min_size=1, max_size=3),
    st.integers(11 * GIB, 500 * GIB),
    st.randoms(use_true_random=False),
)
def test_what_is_said_of_every_order_holds_in_every_order(
    version: str, count: int, sizes: list[int], available: int, order: random.Random
) -> None:
    ranks = [tuple(sizes)] * count
    surely, why = races.refuses(case(version, count, available), ranks)
    started = starts(version, ranks, available, order)
    if surely:
        assert not started
    if not why:
        assert started


@given(st.integers(1, 10**7), st.floats(1.1, 8), st.sampled_from([1, 16, 64, 128]))
def test_a_draft_s_pool_holds_every_token_of_its_target(n: int, ratio: float, page: int) -> None:
    rows = Figure(n // page * page + page, n // page * page + page, n // page * page + page,
                  COMPUTED, "")  # fmt: skip
    for key in ((0, 5, 11), (0, 5, 22), (0, 5, 23)):
        target = by_ratio(rows, ratio_of(ratio), page, key)
        beside = followed(target, rows, page, key)
        assert target.value is not None and beside.value is not None
        assert beside.value - target.value in (0, page)
        assert beside.value % page == 0


@given(st.integers(1, 1 << 42))
def test_the_next_power_of_two(size: int) -> None:
    taken = power_of_two(size)
    assert taken & (taken - 1) == 0 and taken // 2 < size <= taken
