"""A Case → the Device of each pipeline stage on this host."""

from __future__ import annotations

from opsctl.forecast.device import stages
from opsctl.forecast.device.cell import layer
from opsctl.forecast.device.dtype import element
from opsctl.forecast.device.free import HALF_CENT, Free, free
from opsctl.forecast.device.page import page
from opsctl.forecast.device.settings import Settings, settings
from opsctl.forecast.values import (
    COMPUTED,
    MEASURED,
    Case,
    Device,
    DevicePool,
    Figure,
    NoForecast,
)
from opsctl.onhost.learned import band


def device(case: Case, *, steps: bool = False) -> tuple[Device, ...]:
    """One for each pipeline stage hosted here. Raises NoForecast by name."""
    set_, shape = settings(case), case.shape
    if shape.window or shape.linear or shape.indexer or set_.algorithm not in ("", "NGRAM"):
        raise NoForecast("not forecast yet")
    size = element(shape, set_)
    page_size = page(case)
    row = layer(shape.attention, set_, size)
    fraction = set_.flags.get("mem-fraction-static")
    if fraction is None:
        raise NoForecast("mem-fraction-static is not set")
    fraction = float(fraction)
    cells = [(end - first) * row for first, end in stages.runs(shape.layers, set_)]
    found = free(case)
    reserve, rest = _rest(found, fraction) if isinstance(found, Free) else (None, None)
    tokens = _tokens(case, rest, max(cells), page_size)
    return tuple(
        Device(
            tokens,
            cells[stage],
            cells[stage],
            page_size,
            fraction,
            reserve,
            rest,
            () if tokens is None else (_pool("kv", tokens, cells[stage], page_size),),
            None,
        )
        for stage in stages.hosted(case.ranks, set_.pp)
    )


def _rest(found: Free, fraction: float) -> tuple[Figure, Figure]:
    before, after = found.before, found.after
    assert after is not None
    share = 1 - fraction
    value = int(after.value - before.value * share)
    least = int(after.least - before.most * share)
    most = int(after.most - before.least * share)
    reserve = Figure(
        int(before.value * share),
        int(before.least * share),
        int(before.most * share),
        before.basis,
        before.source,
    )
    return reserve, Figure(
        value, least, most, COMPUTED, "GPU memory free before and after the weights"
    )


def _tokens(case: Case, rest: Figure | None, charged: int, page_size: int) -> Figure | None:
    limit = case.flags.get("max-total-tokens")

    def cut(tokens: int) -> int:
        return (min(tokens, int(limit)) if limit else tokens) // page_size * page_size

    if case.measured.tokens is not None:
        tokens = case.measured.tokens
        least, most = band(tokens, charged)
        return Figure(cut(tokens), cut(least), cut(most), MEASURED, case.measured.source)
    if rest is not None:
        return Figure(
            cut(rest.value // charged),
            cut(rest.least // charged),
            cut(rest.most // charged),
            rest.basis,
            rest.source,
        )
    return None


def _pool(name: str, rows: Figure, per_row: int, page_size: int) -> DevicePool:
    sizes = [
        None if n is None else (n + page_size) * per_row
        for n in (rows.value, rows.least, rows.most)
    ]
    return DevicePool(name, rows, per_row, Figure(*sizes, rows.basis, rows.source))
