"""The pools of one stage in GPU memory, from the rows that were solved for.

Sources: mem_cache/memory_pool.py: every KV buffer has a page more than its rows, the indexer's
are whole pages, and recurrent state a slot more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from opsctl.forecast.device.plan import Plan, Stage
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.device.solve import Sizes
from opsctl.forecast.values import ESTIMATED, MEASURED, DevicePool, Figure


@dataclass(frozen=True, slots=True)
class Rows:
    """Solved at the value and both edges; an edge is None where nothing is known beyond it."""

    value: Sizes
    least: Sizes | None
    most: Sizes | None
    basis: str
    source: str

    def figure(self, of: Callable[[Sizes], int]) -> Figure:
        return Figure(
            of(self.value),
            None if self.least is None else of(self.least),
            None if self.most is None else of(self.most),
            self.basis,
            self.source,
        )


def pools(
    found: Plan,
    stage: Stage,
    rows: Rows,
    page: int,
    running: int | None,
    index: int,
    set_: Settings,
) -> tuple[DevicePool, ...]:
    tokens = rows.figure(lambda sizes: sizes.tokens)
    made = []
    if stage.kv:
        made.append(_pool("kv", tokens, stage.kv, page))
    if stage.swa:
        made.append(_pool("swa", rows.figure(lambda sizes: sizes.swa), stage.swa, page))
    if stage.indexer:
        made.append(_pool("indexer", tokens, stage.indexer, page))
    if stage.draft:
        made.append(_pool("draft", tokens, stage.draft, page))
    if stage.state is not None and rows.value.slots[index]:
        made.append(_pool("mamba", _slots(rows, stage, index), stage.state.kept, 1))
        if stage.state.drafts and running is not None:
            spare = Figure(running, None, None, rows.basis, rows.source)
            made.append(_pool("mamba-draft", spare, stage.state.verify, 1))
    return tuple(made)


def _slots(rows: Rows, stage: Stage, index: int) -> Figure:
    """An earlier start's tokens tell its slots only by the share of memory between both."""
    slots = rows.figure(lambda sizes: sizes.slots[index])
    if rows.basis != MEASURED or stage.state is None or stage.state.fixed is not None:
        return slots
    return replace(slots, basis=ESTIMATED, source="mamba-full-memory-ratio beside those tokens")


def _pool(name: str, rows: Figure, per_row: int, more: int) -> DevicePool:
    least, most = rows.least, rows.most
    return DevicePool(
        name,
        rows,
        per_row,
        Figure(
            (rows.value + more) * per_row,
            None if least is None else (least + more) * per_row,
            None if most is None else (most + more) * per_row,
            rows.basis,
            rows.source,
        ),
    )
