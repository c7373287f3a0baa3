"""What each pipeline stage keeps of a token, and what the engine divides its memory by."""

from __future__ import annotations

from dataclasses import dataclass

from opsctl.forecast.device import draft as drafts
from opsctl.forecast.device import dsa, recurrent, window
from opsctl.forecast.device.cell import heads_charged, heads_kept, latent_row
from opsctl.forecast.device.dtype import FP4, kv_dtype
from opsctl.forecast.device.recurrent import Recurrent
from opsctl.forecast.device.settings import Settings, Speculation, speculation
from opsctl.forecast.device.stages import runs
from opsctl.forecast.device.window import Window
from opsctl.forecast.values import Case, Latent, NoForecast


@dataclass(frozen=True, slots=True)
class Stage:
    """Bytes of one token on one rank: `charged` is the divisor; `kv`, `indexer`, `swa` and `draft`
    are what a row of these pools really takes, 0 where there is no such pool."""

    layers: int  # that keep KV of every token
    charged: float
    kv: int
    indexer: int = 0
    swa: int = 0
    draft: int = 0
    window: Window | None = None
    state: Recurrent | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`dtype`: name and bytes of an element of the KV cache."""

    dtype: tuple[str, int]
    drafting: Speculation | None
    stages: tuple[Stage, ...]


def plan(case: Case, set_: Settings, trtllm: bool) -> Plan:
    """Raises NoForecast by name. `trtllm`: the attention backend is trtllm_mha."""
    shape = case.shape
    dtype = kv_dtype(case, set_)
    has_draft = drafts.drafted(set_)
    drafting = speculation(case, set_) if _needs_speculation(case, set_) else None
    own = drafts.pool_row(case, set_) if has_draft else 0
    counted = drafts.counted_layers(case, set_) if has_draft else 0
    split = runs(shape.layers, set_)
    windowed = bool(shape.window) and window.pooled(case, set_, trtllm)
    if dtype[0] == FP4 and (windowed or shape.linear):
        # The engine counts half a byte for an element there and takes a whole one.
        raise NoForecast("FP4 KV is not forecast beside window layers or recurrent state")
    if windowed:
        stages = tuple(_windowed(case, set_, dtype, run, counted, own) for run in split)
        return Plan(dtype, drafting, stages)
    state = None
    if shape.linear:
        state = recurrent.recurrent(case, set_, drafting, split)
    return Plan(
        dtype,
        drafting,
        tuple(
            _stage(case, set_, dtype, run, counted, own, _of_stage(state, case, set_, run))
            for run in split
        ),
    )


def _of_stage(
    state: Recurrent | None, case: Case, set_: Settings, run: tuple[int, int]
) -> Recurrent | None:
    return None if state is None else recurrent.of_stage(state, case, set_, run)


def _needs_speculation(case: Case, set_: Settings) -> bool:
    if not set_.algorithm:
        return False
    return bool(case.shape.linear) or set_.key < (0, 5, 7)


def _windowed(
    case: Case,
    set_: Settings,
    dtype: tuple[str, int],
    run: tuple[int, int],
    counted: int,
    own: int,
) -> Stage:
    found = window.window(case, set_, dtype, *run)
    # Draft layers are counted from 0.5.15 on, here as layers without a window: the others are
    # refused in draft.py.
    counted = counted if set_.key >= (0, 5, 15) else 0
    return Stage(
        found.full_layers,
        window.charged(found, set_, counted, 0),
        found.full * found.full_layers,
        0,
        found.swa * found.swa_layers,
        own,
        found,
    )


def _stage(
    case: Case,
    set_: Settings,
    dtype: tuple[str, int],
    run: tuple[int, int],
    counted: int,
    own: int,
    state: Recurrent | None,
) -> Stage:
    layers = _kept_layers(case, run)
    if not layers:
        raise NoForecast("a pipeline stage without any layer that keeps KV is not forecast")
    if isinstance(case.shape.attention, Latent):
        return _latent(case, set_, dtype, run, layers, counted, own, state)
    heads = case.shape.attention
    charged = heads_charged(heads, layers, set_, dtype)
    kept = heads_kept(heads, layers, set_, dtype)
    charged = drafts.with_draft(charged, 0, layers, counted, set_)
    return Stage(layers, charged, kept, draft=own, state=state)


def _latent(
    case: Case,
    set_: Settings,
    dtype: tuple[str, int],
    run: tuple[int, int],
    layers: int,
    counted: int,
    own: int,
    state: Recurrent | None,
) -> Stage:
    latent, indexer = case.shape.attention, case.shape.indexer
    assert isinstance(latent, Latent)
    raw = latent_row(latent, layers, dtype)
    if indexer is None:
        charged = drafts.with_draft(raw, 0, layers, counted, set_)
        return Stage(layers, charged, raw, draft=own, state=state)
    row = dsa.row_elements(case, set_, latent, dtype) * layers * dtype[1]
    key = dsa.index_bytes(indexer)
    index_layers = dsa.index_layers(case, set_, *run)
    charged = row if set_.key >= dsa.FIXED else raw
    counted_index = key * index_layers if set_.key >= dsa.COUNTED else 0
    charged = drafts.with_draft(charged + counted_index, counted_index, layers, counted, set_)
    if counted and set_.key >= (0, 5, 18):
        charged += key * counted
    return Stage(layers, charged, row, key * index_layers, draft=own, state=state)


def _kept_layers(case: Case, run: tuple[int, int]) -> int:
    """Layers of a stage that keep KV of every token: without a pool of their own, those with a
    window do too."""
    first, end = run
    shape = case.shape
    if first == 0 and end == shape.layers and not shape.linear:
        return shape.layers
    found = sum(1 for layer in shape.full if first <= layer < end)
    return found + sum(1 for layer in shape.window if first <= layer < end)
