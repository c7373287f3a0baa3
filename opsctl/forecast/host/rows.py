"""Bytes that one token (or slot) takes in each host pool of one rank, by version.

Sources: `get_size_per_token` of every host pool class of every release. The pools of the KV cache
follow from the geometry; what the device decides by itself (the width of a DSA row under FP8) is
taken from the device's figures.
"""

from __future__ import annotations

from functools import cache

from opsctl.forecast.device import stages
from opsctl.forecast.device.dtype import element
from opsctl.forecast.host import versions
from opsctl.forecast.host.model import Tier
from opsctl.forecast.values import Case, Device, DevicePool, Geometry, Heads, Latent, NoForecast

QUANT_BLOCK = 128  # one FP32 scale for so many bytes of an indexer's key
STATE = ("mamba", "conv")  # device pools whose rows are slots of recurrent state


def owned(ids: tuple[int, ...], case: Case, tier: Tier, stage: int) -> int:
    """How many of these layers the stage owns."""
    if tier.set.pp == 1:
        return len(ids)
    first, end = stages.runs(case.shape.layers, tier.set)[stage]
    return sum(first <= layer < end for layer in ids)


def heads_row(kind: Heads, tier: Tier, size: int) -> int:
    """Up to 0.5.13 a host pool holds two tensors of K's head size."""
    both = 2 * kind.head_dim
    if tier.key >= versions.V_HEADS:
        both = kind.head_dim + kind.v_head_dim
    return max(1, kind.count // tier.set.heads_over) * both * size


def indexer_row(head_dim: int) -> int:
    """One layer: the key in FP8 and its scales."""
    return head_dim + head_dim // QUANT_BLOCK * 4


def layer_row(case: Case, device: Device, tier: Tier) -> int:
    """One layer of the pool "kv", without an indexer inside."""
    shape = case.shape
    kind, size = shape.attention, element(shape, tier.set)
    if isinstance(kind, Heads):
        return heads_row(kind, tier, size)
    plain = (kind.rank + kind.rope) * size
    if shape.indexer is None or tier.key < versions.DSA_INSIDE:
        return plain
    if versions.DSA_APART <= tier.key < versions.DSA_ROW:
        return plain
    return _device_width(case, device, tier)


def _device_width(case: Case, device: Device, tier: Tier) -> int:
    """Bytes of one DSA row on the device: under FP8 its backend decides whether scales and the
    rotary part are kept beside it."""
    layers = owned(case.shape.full, case, tier, device.stage)
    kv = pool(device, "kv")
    width, left = divmod(kv.bytes_per_row if kv is not None else 0, layers)
    if not width or left:
        raise NoForecast("the width of a DSA row on the device is not known")
    return width


def kv_row(case: Case, device: Device, tier: Tier, *, packed: int = 0) -> int:
    """The whole row of the pool "kv". `packed`: layers of an MTP draft in it."""
    shape = case.shape
    ids = shape.full if pool(device, "swa") is not None else merged(shape.full, shape.window)
    layers = owned(ids, case, tier, device.stage) + packed
    row = layers * layer_row(case, device, tier)
    if shape.indexer is not None and versions.DSA_INSIDE <= tier.key < versions.DSA_APART:
        row += layers * indexer_row(shape.indexer.head_dim)
    return row


def window_row(case: Case, device: Device, tier: Tier) -> int:
    shape = case.shape
    kind = shape.window_attention or shape.attention
    layers = owned(shape.window, case, tier, device.stage)
    size = element(shape, tier.set)
    if isinstance(kind, Latent):
        return layers * (kind.rank + kind.rope) * size
    return layers * heads_row(kind, tier, size)


def own_indexer_row(case: Case, device: Device, tier: Tier, *, packed: int = 0) -> int:
    """The pool "indexer": up to 0.5.21 room for every layer, whether it keeps keys or not."""
    shape = case.shape
    assert shape.indexer is not None
    ids = shape.indexer.layers if tier.key >= versions.DSA_LIVE else shape.full
    layers = owned(ids, case, tier, device.stage) + packed
    return layers * indexer_row(shape.indexer.head_dim)


def draft_row(draft: Geometry, tier: Tier) -> int:
    """A draft's own pool. Its indexer, if it has one, is apart."""
    size = element(draft, tier.set)
    kind = draft.attention
    if isinstance(kind, Heads):
        return len(draft.full) * heads_row(kind, tier, size)
    if draft.indexer is not None and size == 1 and tier.key >= versions.PACKED:
        raise NoForecast("the width of the draft's DSA row under FP8 is not known")
    return len(draft.full) * (kind.rank + kind.rope) * size


def pool(device: Device, name: str) -> DevicePool | None:
    for found in device.pools:
        if found.name == name:
            return found
    return None


@cache
def merged(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))
