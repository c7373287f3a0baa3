"""Bytes that a token takes in the pools of one rank."""

from __future__ import annotations

from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Heads, Latent

NEW_HEADS = (0, 5, 7)  # K and V are counted by themselves from here on


def layer(kind: Heads | Latent, settings: Settings, element: int) -> int:
    """Bytes of one token in one layer.

    A latent row is the same on every rank; KV heads are split, down to one a rank. Up to 0.5.6
    K and V were both counted with the head size of K.
    """
    if isinstance(kind, Latent):
        return (kind.rank + kind.rope) * element
    both = kind.head_dim + kind.v_head_dim
    if settings.key < NEW_HEADS:
        both = 2 * kind.head_dim
    return max(1, kind.count // settings.heads_over) * both * element
