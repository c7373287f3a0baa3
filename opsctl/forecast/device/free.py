"""GPU memory that is free before and after the weights: measured, else estimated. Bytes."""

from __future__ import annotations

from dataclasses import dataclass

from opsctl.forecast.device.draft import COUNTED, drafted
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import ESTIMATED, MEASURED, Case, Figure, Hardware
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
    before = _before(case, set_)
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


# What the driver, the CUDA context and NCCL's buffers take of the memory that nvidia-smi or
# amd-smi shows, GiB: (least, value, most), for one rank and for several. From public logs of
# "Load weight begin. avail mem": RTX PRO 6000 TP8 1.54, H20 TP8 1.97, 24 GB cards TP2 1.06, H200
# TP8 3.11, H100 TP1 1.07; MI355X TP8 4.50. The edges are a judgement.
_CONTEXT = {
    "nvidia": ((0.6, 1.1, 1.8), (0.8, 2.0, 3.8)),
    "amd": ((0.8, 2.0, 4.5), (1.5, 4.2, 6.5)),
}
_SHARED = ("gb10", "thor", "mi300a")


def most_taken(vendor: str) -> int | None:
    """Bytes; None where nobody has looked."""
    shares = _CONTEXT.get(vendor)
    return None if shares is None else int(max(share[2] for share in shares) * GiB)


def shared_with_host(hardware: Hardware) -> bool:
    """Whether the card's memory is the host's."""
    return any(name in card.lower() for card in hardware.cards for name in _SHARED)


def _before(case: Case, set_: Settings) -> Figure | str:
    seen = case.measured
    if seen.free_before is not None:
        return _read(seen.free_before, seen.exact, seen.source, HALF_CENT)
    hardware = case.hardware
    shares = _CONTEXT.get(hardware.vendor)
    if hardware.total is None or shares is None or shared_with_host(hardware):
        return "the memory that is free before the weights is not known: no earlier start"
    least, value, most = shares[0 if set_.tp * set_.pp == 1 else 1]
    total = hardware.total
    return Figure(
        total - int(value * GiB),
        total - hardware.doubt - int(most * GiB),
        total + hardware.doubt - int(least * GiB),
        ESTIMATED,
        "the card's memory less what the driver and NCCL take",
    )


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
