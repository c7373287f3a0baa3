"""Bytes that a token takes in plain KV layers of one rank.

Sources: model_executor/model_runner.py `profile_max_num_token` (to 0.5.6),
model_runner_kv_cache_mixin.py `get_cell_size_per_token` (to 0.5.10), pool_configurator.py
`_compute_cell_size` (0.5.11 on); mem_cache/memory_pool.py for what is allocated.
"""

from __future__ import annotations

from opsctl.forecast.device.dtype import FP4, MXFP8
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Heads, Latent, NoForecast

V_HEADS = (0, 5, 7)  # V counts with a head size of its own from here on
V_HEADS_KEPT = (0, 5, 11)  # and is allocated so from here on, outside of window models
_FP4_BLOCK, _MXFP8_BLOCK = 16, 32


def kv_heads(kind: Heads, set_: Settings) -> int:
    """KV heads of one rank: split down to one."""
    return max(1, kind.count // set_.heads_over)


def latent_row(kind: Latent, layers: int, dtype: tuple[str, int]) -> int:
    """MLA: one latent row a token, the same on every rank. FP4 halves it and adds block scales."""
    name, size = dtype
    elements = kind.rank + kind.rope
    if name == FP4:
        return elements * layers * size // 2 + elements // _FP4_BLOCK * layers * size
    if name == MXFP8:
        raise NoForecast("kv-cache-dtype mxfp8 is not forecast for MLA")
    return elements * layers * size


def heads_charged(kind: Heads, layers: int, set_: Settings, dtype: tuple[str, int]) -> int:
    """What the engine counts for one token: up to 0.5.6 K and V both with K's head size."""
    name, size = dtype
    heads = kv_heads(kind, set_)
    both = kind.head_dim + (kind.v_head_dim if set_.key >= V_HEADS else kind.head_dim)
    found = heads * both * layers * size
    if name == FP4:
        if set_.key >= (0, 5, 16):
            raise NoForecast("FP4 KV of plain attention is not forecast for 0.5.16 and later")
        return found // 2 + heads * kind.head_dim * layers * 2 * size // _FP4_BLOCK
    if name == MXFP8:
        return found + heads * both * layers // _MXFP8_BLOCK
    return found


def heads_kept(kind: Heads, layers: int, set_: Settings, dtype: tuple[str, int]) -> int:
    """What is really allocated for one token."""
    if kind.head_dim == kind.v_head_dim or set_.key >= V_HEADS_KEPT or set_.key < V_HEADS:
        return heads_charged(kind, layers, set_, dtype)
    as_k = Heads(kind.count, kind.head_dim, kind.head_dim)
    return heads_charged(as_k, layers, set_, dtype)
