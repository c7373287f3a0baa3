"""The derivation of a stage's figures, one thought a line, for --explain. No text elsewhere."""

from __future__ import annotations

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
    told = [_row(case, set_, found, stage)]
    if stage.charged != stage.kv + stage.indexer:
        told.append(f"the engine divides by {stage.charged:,.10g} B a token")
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


def _row(case: Case, set_: Settings, found: Plan, stage: Stage) -> str:
    name, size = found.dtype
    kind = case.shape.attention
    if isinstance(kind, Latent):
        of = f"({kind.rank} + {kind.rope}) elements × {stage.layers} layers × {size} B"
    else:
        assert isinstance(kind, Heads)
        heads = max(1, kind.count // set_.heads_over)
        of = (
            f"{heads} KV heads × ({kind.head_dim} + {kind.v_head_dim}) elements × "
            f"{stage.layers} layers × {size} B"
        )
    if stage.indexer:
        of += f", {count(stage.indexer)} B of index keys"
    return f"a token takes {of} = {count(stage.kv + stage.indexer)} B a rank ({name})"


def _rest(left: Rest, fraction: float | None) -> str:
    assert fraction is not None
    share = 1 - fraction
    return (
        f"rest = free after the weights − {share:.4g} × free before them "
        f"({left.reserve.value / GiB:.3f} GiB kept back) = {left.value:.3f} GiB, {left.basis}: "
        f"{left.source}"
    )


def _tokens(case: Case, stage: Stage, left: Rest | str, rows: Rows, page: int) -> list[str]:
    told = []
    value = rows.value
    if not isinstance(left, str) and stage.state is None and rows.source == left.source:
        told.append(
            f"{left.value:.3f} GiB / {stage.charged:,.10g} B = {count(value.profiled)} tokens"
        )
    limit = case.flags.get("max-total-tokens")
    if limit is not None:
        told.append(f"max-total-tokens caps at {count(int(limit))}")
    if page > 1:
        told.append(f"whole pages of {page} tokens")
    edge = ""
    if rows.least is not None and rows.most is not None:
        edge = f" ({count(rows.least.tokens)} to {count(rows.most.tokens)})"
    told.append(f"{count(value.tokens)} tokens{edge}, {rows.basis}: {rows.source}")
    if value.swa:
        told.append(f"{count(value.swa)} tokens of the window pool")
    return told
