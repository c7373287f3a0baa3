"""The derivation of a stage's figures, one thought a line, for --explain. No text elsewhere.

An equation is told only if its two sides are equal: where a release stores or counts something
else, the figure stands alone, with what it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsctl.forecast.device import recurrent
from opsctl.forecast.device.draft import COUNTED
from opsctl.forecast.device.plan import Plan, Stage
from opsctl.forecast.device.pools import Rows
from opsctl.forecast.device.rest import Rest
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Case, Heads, Latent
from opsctl.onhost.expect import count

GiB = 1 << 30


def lines(
    case: Case,
    set_: Settings,
    found: Plan,
    stage: Stage,
    page: int,
    fraction: float | None,
    left: Rest | str,
    rows: Rows | None,
    running: int | None,
) -> tuple[str, ...]:
    told = [*_rows(case, set_, found, stage), *_charged(case, set_, stage)]
    if stage.state is not None:
        told += _slot(case, set_, stage)
    if isinstance(left, str):
        told.append(f"rest: not known, {left}")
    else:
        told.append(_rest(left, fraction))
    if rows is None:
        told.append("tokens: not known before the first start")
    else:
        told += _tokens(case, stage, left, rows, page)
    if running is not None:
        told.append(f"{count(running)} requests at once")
    return tuple(told)


# -- what a token takes ---------------------------------------------------------------------------


def _rows(case: Case, set_: Settings, found: Plan, stage: Stage) -> Iterator[str]:
    """Each pool's row."""
    dtype, size = found.dtype
    whole = stage.kv + stage.indexer
    named = f"a rank ({dtype})"
    attention = case.shape.attention
    if stage.kv:
        of = _product(attention, stage.layers, size, set_, stage.kv)
        if stage.indexer:
            yield f"keys and values: {of} = {count(stage.kv)} B"
            yield f"index keys: {count(stage.indexer)} B"
            yield f"a token takes both = {count(whole)} B {named}"
        else:
            yield f"a token takes {of} = {count(whole)} B {named}"
    if stage.window is not None and stage.swa:
        kind = case.shape.window_attention or attention
        of = _product(kind, stage.window.swa_layers, size, set_, stage.swa)
        span = "" if stage.window.span is None else f", which spans {count(stage.window.span)}"
        yield f"a token of the window{span}, takes {of} = {count(stage.swa)} B a rank"
    if stage.draft:
        yield f"in the draft's own pool it takes {count(stage.draft)} B more"


def _product(kind: Heads | Latent, layers: int, size: int, set_: Settings, row: int) -> str:
    """The row as a product, if it is one of whole elements; else by layers."""
    if isinstance(kind, Latent):
        elements, of = kind.rank + kind.rope, f"({kind.rank} + {kind.rope}) elements"
    else:
        heads = max(1, kind.count // set_.heads_over)
        elements = heads * (kind.head_dim + kind.v_head_dim)
        of = f"{heads} KV heads × ({kind.head_dim} + {kind.v_head_dim}) elements"
        if elements * layers * size != row:
            elements = heads * 2 * kind.head_dim
            of = f"{heads} KV heads × 2 × {kind.head_dim} elements"
    if elements * layers * size == row:
        return f"{of} × {layers} layers × {size} B"
    if layers and row % layers == 0:
        return f"{count(row // layers)} B × {layers} layers"
    return f"rows of {layers} layers"


def _charged(case: Case, set_: Settings, stage: Stage) -> Iterator[str]:
    """What the engine divides by, where it is not the row."""
    charged, row = stage.charged, stage.kv + stage.indexer
    if charged == row:
        return
    figure, window = f"{charged:,.10g} B", stage.window
    if window is not None and charged == row + window.ratio * stage.swa:
        yield (
            f"the engine divides by {count(row)} + {window.ratio:g} × {count(stage.swa)} = "
            f"{figure}: swa-full-tokens-ratio {window.ratio:g}"
        )
    elif window is not None and charged == row + stage.swa:
        both = row + window.ratio * stage.swa
        yield (
            f"the engine divides by {count(row)} + {count(stage.swa)} = {figure}, and splits what "
            f"that gives by {count(row)} + {window.ratio:g} × {count(stage.swa)} = {both:,.10g} B: "
            f"swa-full-tokens-ratio {window.ratio:g}"
        )
    elif window is None and set_.algorithm and set_.key >= COUNTED and charged > row:
        more = f"{charged - row:,.10g}"
        yield f"the engine divides by {count(row)} + {more} for the draft's layers = {figure}"
    else:
        yield f"the engine divides by {figure}: what {case.version} counts for a token"


def _slot(case: Case, set_: Settings, stage: Stage) -> Iterator[str]:
    state, shape = stage.state, case.shape.state
    assert state is not None and shape is not None
    one = recurrent.layer_bytes(shape, set_)
    layers = len(case.shape.linear)
    of = f"{count(one)} B × {layers} layers = " if one * layers == state.kept else ""
    yield f"a slot of recurrent state ({shape.kind}) takes {of}{count(state.kept)} B a rank"
    if state.drafts:
        yield f"and {count(state.verify)} B more a request for {state.drafts} draft tokens"
    if state.fixed is not None:
        yield f"{count(state.fixed)} slots are set by flags"
    else:
        part = state.share / (1 + state.share)
        yield (
            f"state gets {state.share:g} / (1 + {state.share:g}) = {part:.4g} of the rest: "
            f"mamba-full-memory-ratio {state.share:g}"
        )
    if state.each:
        yield f"a request takes {state.each} slots"


# -- how many -------------------------------------------------------------------------------------


def _rest(left: Rest, fraction: float | None) -> str:
    assert fraction is not None
    share = 1 - fraction
    return (
        f"rest = free after the weights − {share:.4g} × free before them "
        f"({left.reserve.value / GiB:.3f} GiB kept back) = {left.value:.3f} GiB, {left.basis}: "
        f"{left.source}"
    )


def _tokens(case: Case, stage: Stage, left: Rest | str, rows: Rows, page: int) -> Iterator[str]:
    value = rows.value
    if not isinstance(left, str) and stage.state is None and rows.source == left.source:
        yield f"{left.value:.3f} GiB / {stage.charged:,.10g} B = {count(value.profiled)} tokens"
    if stage.state is not None and any(value.slots):
        slots = max(value.slots)
        size = (slots + 1) * stage.state.kept / GiB
        yield (
            f"{count(slots)} slots of recurrent state and one of padding = {size:.2f} GiB; KV gets "
            "what is left"
        )
    limit = case.flags.get("max-total-tokens")
    if limit is not None:
        yield f"max-total-tokens caps at {count(int(limit))}"
    if page > 1:
        yield f"whole pages of {page} tokens"
    edge = ""
    if rows.least is not None and rows.most is not None:
        edge = f" ({count(rows.least.tokens)} to {count(rows.most.tokens)})"
    yield f"{count(value.tokens)} tokens{edge}, {rows.basis}: {rows.source}"
    if value.swa:
        yield f"{count(value.swa)} tokens of the window's pool"
