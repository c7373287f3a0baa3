"""Tokens of host pools: by ratio, by size, or by what the engine finds free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opsctl.forecast.host import versions
from opsctl.forecast.host.memory import RESERVE, after_processes
from opsctl.forecast.host.model import Tier
from opsctl.forecast.values import Case, Figure
from opsctl.onhost.expect import sidecar_tokens, whole_pages

SHARE_BAND = 0.01  # of a share of hicache-size, a judgement
SLACK = 0.05  # of the budget, beside the pools (hicache_auto_size.py)


@dataclass(frozen=True, slots=True)
class Tokens:
    """None: not known. `least` and `most` bound the truth."""

    value: int | None
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with its band; `value` None: not known."""

    value: float | None
    least: float | None
    most: float | None


def given(ratio: float) -> Ratio:
    return Ratio(ratio, ratio, ratio)


@dataclass(frozen=True, slots=True)
class Way:
    """`size`: GB if above zero, and then it counts; else `ratio`. `shared`: the size is a share of
    hicache-size by the device's bytes, which come out a little different from what was forecast."""

    ratio: Ratio
    size: float
    shared: bool


def by_size(
    size: float, row: int, page: int, key: tuple[int, ...], *, shared: bool = False
) -> Tokens:
    """`size`: GB = 10^9 bytes. `row`: the widest of all stages where they agree on the least."""
    tokens = whole_pages(int(size * 1e9 // row), page, key)
    band = int(tokens * SHARE_BAND) + page if shared else 0
    return Tokens(tokens, tokens - band, tokens + band)


def by_ratio(rows: Figure | None, ratio: Ratio, page: int, key: tuple[int, ...]) -> Tokens:
    def times(count: int | None, factor: float | None) -> int | None:
        if count is None or factor is None:
            return None
        return whole_pages(int(count * factor), page, key)

    if rows is None:
        return Tokens(None, None, None)
    return Tokens(
        times(rows.value, ratio.value),
        times(rows.least, ratio.least),
        times(rows.most, ratio.most),
    )


def followed(target: Tokens, device: Figure | None, page: int, key: tuple[int, ...]) -> Tokens:
    """A draft's own pool beside a target's host pool of `target` tokens."""
    if key >= versions.SIDECAR_EQUAL:
        return target

    def beside(tokens: int | None) -> int | None:
        if tokens is None:
            return None
        if device is None or not device.value:
            return tokens + page
        return sidecar_tokens(tokens, device.value, page, key)

    value = beside(target.value)
    if device is not None and device.least == device.most:
        return Tokens(value, value, value)
    most = None if target.most is None else target.most + page
    return Tokens(value, target.least, most)


def found_free(case: Case, tier: Tier, mirrored: Iterable[Figure | None]) -> Ratio:
    """The ratio that 0.5.21+ chooses: what is free when all ranks are ready to take their pools,
    less 10 GiB, shared by the ranks, a fraction of it, over the device bytes that are mirrored.

    The least over all ranks counts, taken before any pool is: there is no race. The band is that
    of what the processes hold by then.
    """
    free = after_processes(case)
    sizes = list(mirrored)
    if free is None or any(size is None for size in sizes):
        return Ratio(None, None, None)
    figures = [size for size in sizes if size is not None]
    ranks = max(1, len(case.ranks))

    def ratio(available: int | None, bytes_: int | None) -> float | None:
        if available is None or not bytes_:
            return None
        budget = int(((available - RESERVE) // ranks) * tier.fraction)
        return min(tier.ratio, budget * (1 - SLACK) / bytes_)

    def total(which: str) -> int | None:
        parts = [getattr(figure, which) for figure in figures]
        return None if None in parts else sum(parts)

    return Ratio(
        ratio(free.value, total("value")),
        ratio(free.least, total("most")),
        ratio(free.most, total("least")),
    )


def power_of_two(size: int) -> int:
    """What the allocator of pinned memory takes up to 0.5.4.post1 for one block of `size`."""
    return 1 << (size - 1).bit_length() if size > 0 else 0
