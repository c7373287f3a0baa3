"""A Case → the Device of each pipeline stage on this host."""

from __future__ import annotations

import math

from opsctl.forecast.device import steps as words
from opsctl.forecast.device.backend import attention
from opsctl.forecast.device.caps import requests
from opsctl.forecast.device.fraction import effective_fraction
from opsctl.forecast.device.free import Free, free
from opsctl.forecast.device.page import page_of
from opsctl.forecast.device.plan import Plan, Stage, plan
from opsctl.forecast.device.pools import Rows, pools
from opsctl.forecast.device.rest import Rest, rest
from opsctl.forecast.device.settings import Settings, settings
from opsctl.forecast.device.solve import GiB, Sizes, between, from_memory, from_tokens
from opsctl.forecast.device.stages import hosted
from opsctl.forecast.values import (
    ESTIMATED,
    MEASURED,
    Case,
    Device,
    Figure,
    NoForecast,
    NoRoom,
    NoStart,
    Room,
)
from opsctl.onhost.expect import gib
from opsctl.onhost.learned import band

# Before, the stages of a pipeline agreed on tokens only after each had counted its requests
# (0.5.9 model_runner_kv_cache_mixin.py, init_memory_pool).
_AGREED = (0, 5, 10)


def device(case: Case, *, steps: bool = False) -> tuple[Device, ...]:
    """One for each pipeline stage that has a rank here. Raises NoForecast by name.

    `tokens` is None where neither an earlier start nor the free memory is known, and no flag caps
    them. With `steps` each tells how it came about, line by line.
    """
    set_ = settings(case)
    backends = attention(case, set_)
    page = page_of(case, set_, backends)
    found = plan(case, set_, backends is not None and "trtllm_mha" in backends)
    fraction, left = _memory(case, set_)
    rows = _rows(case, set_, found, page, left)
    return tuple(
        _device(case, set_, found, page, fraction, left, rows, stage, steps)
        for stage in hosted(case.ranks, set_.pp)
    )


def _memory(case: Case, set_: Settings) -> tuple[float | None, Rest | str]:
    """The fraction, and what is left for pools or else what is missing to tell it."""
    try:
        fraction = effective_fraction(case, set_)
    except NoForecast as reason:
        return None, str(reason)
    found = free(case, set_)
    if not isinstance(found, Free):
        return fraction, found
    return fraction, rest(case, set_, found, fraction)


def _rows(case: Case, set_: Settings, found: Plan, page: int, left: Rest | str) -> Rows | None:
    """Rows of the pools at the value and both edges, from the best source that there is."""
    if case.measured.tokens is not None:
        return _measured(case, set_, found, page, left)
    if isinstance(left, str):
        limit = set_.flags.get("max-total-tokens")
        if limit is None:
            return None
        most = from_tokens(int(limit) // page * page, found, set_, page)
        return Rows(most, None, most, ESTIMATED, "max-total-tokens")
    value = from_memory(left.value, found, set_, page)
    try:
        least: Sizes | None = from_memory(left.least, found, set_, page)
    except NoForecast:
        least = None  # at this edge the start would fail
    if value.tokens <= 0 and from_memory(left.most, found, set_, page).tokens <= 0:
        raise _no_room(case, set_, left, page)
    most = from_memory(left.most, found, set_, page)
    if least is not None:
        least, most = between(least, most, found, set_, page)
    return Rows(value, least, most, left.basis, left.source)


def _no_room(case: Case, set_: Settings, left: Rest, page: int) -> NoStart:
    """Why no token is left, with the figures that tell what to change."""
    limit = set_.flags.get("max-total-tokens")
    if limit is not None and int(limit) < page:
        return NoStart(f"max-total-tokens {limit} is less than a page of {page} tokens")
    found = free(case, set_)
    assert isinstance(found, Free)
    before, share = found.before.value, left.reserve.value / found.before.value
    weights = found.weights
    if weights is None:
        assert found.after is not None
        weights = Figure(
            before - found.after.value, None, None, found.after.basis, found.after.source
        )
    room = Room(
        round(1 - share, 4),
        math.ceil(1000 * weights.value / before) / 1000,
        weights,
        left.reserve,
        _rest_figure(left),
    )
    return NoRoom(
        "the weights leave no GPU memory for the KV cache: the start would fail. They take "
        f"{gib(weights.value)} of the {gib(before)} that are free before them, and "
        f"{gib(left.reserve.value)} are kept free by mem-fraction-static {room.fraction:g}; "
        + (f"it must be above {room.above:g}" if room.above < 1 else "no fraction is enough"),
        room,
    )


def _measured(case: Case, set_: Settings, found: Plan, page: int, left: Rest | str) -> Rows:
    """What an earlier start with the same GPU settings logged, give or take learned.DRIFT.

    Slots of recurrent state are not among it: they come from the memory, if that is known.
    """
    tokens = case.measured.tokens
    assert tokens is not None
    limit = set_.flags.get("max-total-tokens")
    low, high = band(tokens, max(1, int(max(stage.charged for stage in found.stages))))
    at = [n if limit is None else min(n, int(limit)) for n in (tokens, low, high)]
    sizes = [
        from_tokens(n // page * page, found, set_, page, edge)
        for n, edge in zip(at, (0, -1, 1), strict=True)
    ]
    if not isinstance(left, str) and found.stages[0].state is not None:
        slots = from_memory(left.value, found, set_, page).slots
        sizes = [Sizes(s.profiled, s.tokens, s.swa, slots) for s in sizes]
    return Rows(sizes[0], sizes[1], sizes[2], MEASURED, case.measured.source)


def _device(
    case: Case,
    set_: Settings,
    found: Plan,
    page: int,
    fraction: float | None,
    left: Rest | str,
    rows: Rows | None,
    index: int,
    steps: bool,
) -> Device:
    stage = found.stages[index]
    known = None if isinstance(left, str) else left
    tokens = None if rows is None else rows.figure(lambda sizes: sizes.tokens)
    running = None if rows is None else _running(case, set_, stage, rows.value, index)
    made = () if rows is None else pools(found, stage, rows, page, running, index, set_)
    lines: tuple[str, ...] = ()
    if steps:
        lines = words.lines(case, set_, found, stage, page, fraction, left, rows, running)
    return Device(
        tokens,
        int(stage.charged),
        stage.kv + stage.indexer,
        page,
        fraction,
        None if known is None else known.reserve,
        None if known is None else _rest_figure(known),
        made,
        running,
        lines,
        index,
    )


def _rest_figure(left: Rest) -> Figure:
    return Figure(
        int(left.value * GiB), int(left.least * GiB), int(left.most * GiB), left.basis, left.source
    )


def _running(case: Case, set_: Settings, stage: Stage, sizes: Sizes, index: int) -> int | None:
    """None where the context or the slots that a request takes are not known."""
    context = set_.flags.get("context-length") or case.shape.context
    if context is None or not sizes.tokens:
        return None
    state = None
    if stage.state is not None:
        if stage.state.each is None or not sizes.slots[index]:
            return None
        state = sizes.slots[index] // stage.state.each
    profiled = sizes.profiled
    if sizes.own and set_.key < _AGREED:
        profiled = sizes.own[index]
    return requests(sizes.tokens, profiled, int(context), set_, state)
