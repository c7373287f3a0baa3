"""What is left for pools: (1 − fraction) of what was free before the weights is kept back.

Sources: `profile_max_num_token` (to 0.5.10), `_profile_available_bytes` (0.5.11 on),
`mm_runtime_reservation_gb` (0.5.18 on).
"""

from __future__ import annotations

from dataclasses import dataclass

from opsctl.forecast.device.free import Free
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.shape import multimodal
from opsctl.forecast.values import COMPUTED, ESTIMATED, Case, Figure
from opsctl.onhost.learned import DRIFT

GiB = 1 << 30
_RESERVED_FOR_IMAGES = (0, 5, 18)


@dataclass(frozen=True, slots=True)
class Rest:
    """GiB, as the engine reckons; `reserve` in bytes for people."""

    value: float
    least: float
    most: float
    basis: str
    source: str
    reserve: Figure


def rest(case: Case, set_: Settings, found: Free, fraction: float) -> Rest:
    """The band follows from what the figures are known by: two log lines by themselves err by
    themselves; an estimate of the free memory moves both sides. Lines are of one start, and the
    next one finds what it found give or take learned.DRIFT: as tokens that a start has logged."""
    share = 1 - fraction
    before, after, weights = found.before, found.after, found.weights
    images, doubt = images_reserve(case, set_)
    kept_back = Figure(
        int(before.value * share) + images,
        None if before.least is None else int(before.least * share) + images,
        None if before.most is None else int(before.most * share) + images + doubt,
        before.basis,
        before.source,
    )
    low, high = before.least or 0, before.most or before.value
    if after is not None:
        value = after.value / GiB - before.value / GiB * share
        least = (after.least or 0) / GiB - high / GiB * share
        most = (after.most or after.value) / GiB - low / GiB * share
        basis = ESTIMATED if ESTIMATED in (before.basis, after.basis) else COMPUTED
        source = "GPU memory free before and after the weights"
        if before.basis == ESTIMATED:
            source = f"{before.source}; GPU memory free after the weights"
    else:
        assert weights is not None
        value = (before.value - weights.value) / GiB - before.value / GiB * share
        least = (low * fraction - (weights.most or weights.value)) / GiB
        most = (high * fraction - (weights.least or 0)) / GiB
        basis = ESTIMATED if ESTIMATED in (before.basis, weights.basis) else COMPUTED
        source = f"{before.source}; {weights.source}"
    kept, drift = images / GiB, DRIFT / GiB if after is not None or basis != ESTIMATED else 0.0
    return Rest(
        value - kept,
        least - kept - doubt / GiB - drift,
        most - kept + drift,
        basis,
        source,
        kept_back,
    )


def images_reserve(case: Case, set_: Settings) -> tuple[int, int]:
    """Bytes that multimodal models keep back from 0.5.18 on, and by how much more it may be.

    SGLANG_VLM_CACHE_SIZE_MB (100), and SGLANG_MM_FEATURE_CACHE_MB (1024) if features travel by
    CUDA; left unset, the engine decides that by itself.
    """
    if set_.key < _RESERVED_FOR_IMAGES or not multimodal(case.shape, case.flags):
        return 0, 0
    images = int(set_.env.get("SGLANG_VLM_CACHE_SIZE_MB", "100")) << 20
    features = int(set_.env.get("SGLANG_MM_FEATURE_CACHE_MB", "1024")) << 20
    transport = set_.flags.get("mm-feature-transport")
    if transport in ("cuda_ipc", "cuda_vmm"):
        return images + features, 0
    return images, 0 if transport == "cpu" else features
