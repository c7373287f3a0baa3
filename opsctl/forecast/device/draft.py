"""A draft model's KV: what is counted for it, and the pool that it really gets.

Source: model_executor/pool_configurator.py (0.5.14 on).
"""

from __future__ import annotations

from opsctl.forecast.device.cell import heads_kept, latent_row
from opsctl.forecast.device.dsa import index_bytes, row_elements
from opsctl.forecast.device.dtype import draft_dtype
from opsctl.forecast.device.settings import DRAFTED, UNDRAFTED, Settings
from opsctl.forecast.device.window import MIMO
from opsctl.forecast.values import Case, Geometry, Latent, NoForecast

COUNTED = (0, 5, 14)  # weights and KV of the draft are in the budget from here on


def drafted(set_: Settings) -> bool:
    """Whether a draft model runs whose KV is known here. Raises NoForecast by name."""
    if set_.algorithm in UNDRAFTED:
        return False
    if set_.algorithm not in DRAFTED:
        raise NoForecast(f"the KV of speculative-algorithm {set_.algorithm} is not forecast yet")
    return True


def draft_shape(case: Case) -> Geometry:
    if case.draft is None:
        raise NoForecast("the draft model's config.json is not known: offline, give --draft-config")
    if case.shape.architecture in MIMO or case.draft.window:
        raise NoForecast("drafts with window layers are not forecast")
    return case.draft


def counted_layers(case: Case, set_: Settings) -> int:
    """Draft layers that the engine counts when it sizes the target's pool; 0: it does not."""
    if set_.key < COUNTED or not drafted(set_):
        return 0
    shape = draft_shape(case)
    return shape.layers if shape.counted is None else shape.counted


def with_draft(cell: int, indexer: int, layers: int, drafts: int, set_: Settings) -> int:
    """`cell` bytes of `layers` layers (of them `indexer` bytes for index keys of one layer each)
    with `drafts` more layers, as this release adds them: in floating point, and from 0.5.18 on
    index keys by themselves."""
    if not drafts or not layers:
        return cell
    if indexer and set_.key >= (0, 5, 18):
        return cell + int((cell - indexer) * drafts / layers)
    if set_.key >= (0, 5, 22):
        return cell + int(cell * drafts / layers)
    return int(cell * (1 + drafts / layers))


def pool_row(case: Case, set_: Settings) -> int:
    """Bytes of one token in the draft's own pool, which has as many tokens as the target's. 0 where
    it is not known and nothing else depends on it: slack.py says that it is not counted."""
    if case.draft is None and set_.key < COUNTED:
        return 0
    shape = draft_shape(case)
    dtype = draft_dtype(case, shape, set_)
    layers = shape.layers
    if not isinstance(shape.attention, Latent):
        return heads_kept(shape.attention, layers, set_, dtype)
    if shape.indexer is None:
        return latent_row(shape.attention, layers, dtype)
    row = row_elements(case, set_, shape.attention, dtype) * dtype[1]
    return layers * (row + index_bytes(shape.indexer))
