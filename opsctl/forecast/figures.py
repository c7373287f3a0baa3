"""Figures of several ranks as one. None: a rank has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opsctl.forecast.values import MEASURED, Case, Figure


def agreed(values: Iterable[int | None]) -> int | None:
    """The one value that all ranks have."""
    found = set(values)
    return next(iter(found)) if len(found) == 1 else None


def least(values: Iterable[int | None]) -> int | None:
    """The least; None if any rank has none, since the missing one could be less."""
    found = list(values)
    known = [value for value in found if value is not None]
    return min(known) if known and len(known) == len(found) else None


def most(values: Iterable[int | None]) -> int | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def after_weights(rank: Mapping[str, Any], draft_first: bool) -> int | None:
    """What a rank had free when its pools were sized: after the draft's weights too, where those
    are loaded first (0.5.14 and later)."""
    after = rank.get("free_after_weights")
    if draft_first:
        after = (rank.get("draft") or {}).get("free_after", after)
    return None if after is None else int(after)


def pinned(ranks: Iterable[Mapping[str, Any]]) -> int:
    """Bytes of the host pools of these ranks together."""
    return sum(int(pool["bytes"]) for rank in ranks for pool in rank.get("host_pools") or ())


def speed(told: Mapping[str, Any] | None, where: str) -> Figure | None:
    """Prefill speed, tokens a second of one replica, as onhost/prefill.py tells it."""
    if not told:
        return None
    source = f"{where}: {told['samples']} large batches of prompts"
    return Figure(int(told["value"]), int(told["least"]), int(told["most"]), MEASURED, source)


def weights(case: Case) -> Figure | None:
    """What loading takes of one GPU: as an earlier start logged it, else what was free before it
    and after it, else by tensor shapes."""
    seen = case.measured
    if seen.weights is not None:
        return Figure(seen.weights, None, None, MEASURED, seen.source)
    if seen.free_before is None or seen.free_after is None:
        return case.weights
    return Figure(seen.free_before - seen.free_after, None, None, MEASURED, seen.source)
