"""Bytes that one token (or slot) takes in each host pool of one rank, by version.

Sources: `get_size_per_token` of every host pool class of every release.
"""

from __future__ import annotations

from functools import cache

from opsctl.forecast.device import dsa, stages
from opsctl.forecast.device.cell import kv_heads
from opsctl.forecast.device.dtype import FP4, MXFP8, draft_dtype, kv_dtype
from opsctl.forecast.device.recurrent import layer_bytes
from opsctl.forecast.host import versions
from opsctl.forecast.host.model import Tier
from opsctl.forecast.values import Case, Device, DevicePool, Heads, Latent, NoForecast

STATE = ("mamba", "mamba-draft")  # device pools of recurrent state; the first one's rows are slots
_DTYPE = tuple[str, int]


def owned(ids: tuple[int, ...], case: Case, tier: Tier, stage: int) -> int:
    """How many of these layers the stage owns."""
    if tier.set.pp == 1:
        return len(ids)
    first, end = stages.runs(case.shape.layers, tier.set)[stage]
    return sum(first <= layer < end for layer in ids)


def dtype(case: Case, tier: Tier) -> _DTYPE:
    """(name, bytes of an element) of the target's KV cache."""
    return _plain(kv_dtype(case, tier.set))


def _plain(found: _DTYPE) -> _DTYPE:
    if found[0] in (FP4, MXFP8):
        raise NoForecast(f"the host pools of kv-cache-dtype {found[0]} are not forecast")
    return found


def heads_row(kind: Heads, tier: Tier, size: int) -> int:
    """Up to 0.5.13 a host pool holds two tensors of K's head size."""
    both = 2 * kind.head_dim
    if tier.key >= versions.V_HEADS:
        both = kind.head_dim + kind.v_head_dim
    return kv_heads(kind, tier.set) * both * size


def layer_row(case: Case, tier: Tier) -> int:
    """One layer of the pool "kv", without an indexer inside."""
    shape = case.shape
    kind, found = shape.attention, dtype(case, tier)
    if isinstance(kind, Heads):
        return heads_row(kind, tier, found[1])
    plain = (kind.rank + kind.rope) * found[1]
    if shape.indexer is None or tier.key < versions.DSA_INSIDE:
        return plain
    if versions.DSA_APART <= tier.key < versions.DSA_ROW:
        return plain
    return dsa.row_elements(case, tier.set, kind, found) * found[1]


def kv_row(case: Case, device: Device, tier: Tier, *, packed: int = 0) -> int:
    """The whole row of the pool "kv". `packed`: layers of an MTP draft in it."""
    shape = case.shape
    ids = shape.full if pool(device, "swa") is not None else merged(shape.full, shape.window)
    layers = owned(ids, case, tier, device.stage) + packed
    row = layers * layer_row(case, tier)
    if shape.indexer is not None and versions.DSA_INSIDE <= tier.key < versions.DSA_APART:
        row += layers * dsa.index_bytes(shape.indexer)
    return row


def window_row(case: Case, device: Device, tier: Tier) -> int:
    shape = case.shape
    kind = shape.window_attention or shape.attention
    layers = owned(shape.window, case, tier, device.stage)
    size = dtype(case, tier)[1]
    if isinstance(kind, Latent):
        return layers * (kind.rank + kind.rope) * size
    return layers * heads_row(kind, tier, size)


def own_indexer_row(case: Case, device: Device, tier: Tier, *, packed: int = 0) -> int:
    """The pool "indexer": up to 0.5.21 room for every layer, whether it keeps keys or not."""
    shape = case.shape
    assert shape.indexer is not None
    ids = shape.indexer.layers if tier.key >= versions.DSA_LIVE else shape.full
    layers = owned(ids, case, tier, device.stage) + packed
    return layers * dsa.index_bytes(shape.indexer)


def state_row(case: Case, tier: Tier, stage: int) -> int:
    """One slot: the recurrent state and the convolution's, of all layers of the stage."""
    state = case.shape.state
    if state is None:
        raise NoForecast("the size of the recurrent state is not known")
    return owned(case.shape.linear, case, tier, stage) * layer_bytes(state, tier.set)


def draft_row(case: Case, tier: Tier) -> int:
    """A draft's own pool. Its indexer, if it has one, is apart."""
    draft = case.draft
    assert draft is not None
    found = _plain(draft_dtype(case, draft, tier.set))
    kind = draft.attention
    if isinstance(kind, Heads):
        return len(draft.full) * heads_row(kind, tier, found[1])
    elements = kind.rank + kind.rope
    if draft.indexer is not None and tier.key >= versions.PACKED:
        elements = dsa.row_elements(case, tier.set, kind, found)
    return len(draft.full) * elements * found[1]


def pool(device: Device, name: str) -> DevicePool | None:
    for found in device.pools:
        if found.name == name:
            return found
    return None


@cache
def merged(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))
