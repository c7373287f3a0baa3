"""GPU memory that is free before and after the weights: measured, else estimated. Bytes."""

from __future__ import annotations

from dataclasses import dataclass

from opsctl.forecast.device.draft import COUNTED, drafted
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import ESTIMATED, MEASURED, Case, Figure
from opsctl.onhost.expect import GiB

# A log line in GiB has two decimals.
HALF_CENT = GiB // 200 + 1
CENT = GiB // 100 + 1


@dataclass(frozen=True, slots=True)
class Free:
    """Least over the ranks, and where the figures come from.

    Either `after` or `weights` is known. They are not interchangeable: an error in `before`
    moves what is left by the fraction alone if `after` was read by itself, but by more if it is
    `before` less the weights.
    """

    before: Figure
    after: Figure | None
    weights: Figure | None


def free(case: Case, set_: Settings) -> Free | str:
    """What is known of the free memory; else, for people, what is missing."""
    seen = case.measured
    before = _before(case)
    if isinstance(before, str):
        return before
    if seen.free_after is not None:
        return Free(before, _read(seen.free_after, seen.exact, seen.source, HALF_CENT), None)
    weights = _weights(case, set_)
    if weights is None:
        return "the weights of one rank are not known: no earlier start, no tensor shapes"
    return Free(before, None, weights)


def _read(value: int, exact: bool, source: str, half: int) -> Figure:
    slack = 0 if exact else half
    return Figure(value, value - slack, value + slack, MEASURED, source)


def _before(case: Case) -> Figure | str:
    seen = case.measured
    if seen.free_before is not None:
        return _read(seen.free_before, seen.exact, seen.source, HALF_CENT)
    return "the memory that is free before the weights is not known: no earlier start"


def _weights(case: Case, set_: Settings) -> Figure | None:
    """Of the target, and of a draft where it is loaded before the pools are sized."""
    seen = case.measured
    target = case.weights
    if seen.weights is not None:
        target = _read(seen.weights, seen.exact, seen.source, CENT)
    if target is None or set_.key < COUNTED or not drafted(set_):
        return target
    draft = case.draft_weights
    if seen.draft_weights is not None:
        draft = _read(seen.draft_weights, seen.exact, seen.source, CENT)
    if draft is None:
        return None
    return _sum(target, draft)


def _sum(one: Figure, other: Figure) -> Figure:
    least = None if one.least is None or other.least is None else one.least + other.least
    most = None if one.most is None or other.most is None else one.most + other.most
    basis = ESTIMATED if ESTIMATED in (one.basis, other.basis) else one.basis
    return Figure(one.value + other.value, least, most, basis, f"{one.source}; {other.source}")
