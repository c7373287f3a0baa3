"""Whether figures that are called measured can be of these settings on these cards.

They are held against what is known besides: the weights that follow from tensors, dimensions or
model.size, the card's memory, earlier starts here. Free memory and tokens that somebody wrote down
once outlive the settings that they were read with; believed all the same, they make what cannot
start look as if it fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsctl.forecast import carried
from opsctl.forecast.device import device
from opsctl.forecast.device.free import most_taken, shared_with_host
from opsctl.forecast.device.hardware import USUAL_DOUBT, usual_memory
from opsctl.forecast.figures import least
from opsctl.forecast.sharding import split
from opsctl.forecast.values import ESTIMATED, Case, Figure, Hardware, Measured, NoForecast
from opsctl.onhost.expect import GiB, count, gib

# How far beyond an estimate's own band a figure is still believed. A judgement: it must let every
# real start through, and other ranks or other bits of a weight change the figure by half or more.
_UNDER, _OVER = 0.9, 1.1
_CENT = GiB // 100 + 1  # log lines have two decimals

# Of the files' bytes over the ranks: least, likely, most. What is not split (MLA's projections
# down, small tensors, image towers) counts on every rank: Kimi-K2.5 over eight takes 1.04 of its
# share. MTP layers that are not loaded take a little away. model.size is the least that the files
# may have.
ONE, SPLIT = (0.90, 1.02, 1.15), (0.88, 1.04, 1.35)
_BESIDE = GiB  # kernels and the allocator's waste, at most
# Weights that are kept otherwise than the files hold them, or in part.
_OTHERWISE = ("quantization", "torchao-config", "cpu-offload-gb", "offload-group-size")


@dataclass(frozen=True, slots=True)
class Known:
    """`weights`: what loading should take of a rank, a draft's too where it is loaded before the
    pools. `total`: memory of a card at most, `free`: of that at least free before the weights;
    bytes. None: not known."""

    weights: Figure | None = None
    total: int | None = None
    free: int | None = None


NOTHING = Known()


def known(
    flags: Mapping[str, Any],
    weights: Figure | None,
    draft: Figure | None,
    size: int | None,
    hardware: Hardware,
    used: int = 0,
) -> Known:
    """`draft`: of a draft that is loaded before the pools are sized; `size`: model.size; `used`:
    bytes of a card that are in use now, by whomever."""
    total, free = card(hardware), _free(hardware, used)
    if flags.get("json-model-override-args") or str(flags.get("dtype")) in ("float", "float32"):
        return Known(None, total, free)
    figure = weights
    if figure is None and size is not None and not any(flags.get(name) for name in _OTHERWISE):
        figure = by_size(flags, size)
    if figure is not None and draft is not None:
        figure = replace(figure, most=(figure.most or 0) + (draft.most or draft.value))
    return Known(figure, total, free)


def by_size(flags: Mapping[str, Any], size: int) -> Figure | None:
    """Weights of a rank by model.size, bytes; None where they are not split over all ranks."""
    cut = split(flags)
    if flags.get("load-format") in ("gguf", "bitsandbytes") or cut.attention < cut.ranks:
        return None
    over = cut.ranks * cut.stages
    low, likely, high = (int(size * part / over) for part in (ONE if over == 1 else SPLIT))
    return Figure(likely, low, high + _BESIDE, ESTIMATED, "model.size over the ranks")


def card(hardware: Hardware) -> int | None:
    """Memory of a card at most: as it was told, else what cards of its name have."""
    if hardware.total is not None:
        return hardware.total
    if len(set(hardware.cards)) != 1 or not hardware.cards[0]:
        return None
    usual = usual_memory(hardware.cards[0], hardware.vendor)
    return None if usual is None else int(usual * (1 + USUAL_DOUBT))


def _free(hardware: Hardware, used: int) -> int | None:
    """What a start here should find free of a card at least, whatever driver and NCCL take."""
    total, taken = card(hardware), most_taken(hardware.vendor)
    if total is None or taken is None or shared_with_host(hardware):
        return None
    if hardware.total is None:
        total = int(total * (1 - USUAL_DOUBT) / (1 + USUAL_DOUBT))
    return total - used - taken


def contradiction(seen: Measured, held: Known) -> str:
    """Why figures of free memory and weights cannot be of these settings and cards; "" if they
    can."""
    before, after, took = seen.free_before, seen.free_after, loaded(seen)
    if before is not None and after is not None and after > before:
        return f"{gib(after)} free after the weights are more than {gib(before)} before them"
    if before is not None and held.total is not None and before > held.total:
        return (
            f"they are of other cards: {gib(before)} were free before the weights, and these have "
            f"{gib(held.total)}"
        )
    figure = held.weights
    if figure is None or figure.least is None or figure.most is None:
        return ""
    low, high = figure.least * _UNDER - GiB // 4, figure.most * _OVER + GiB
    if took is not None and not low <= took <= high:
        return (
            f"the weights took {gib(took)} of a rank, and {gib(figure.least)} to "
            f"{gib(figure.most)} follow from {figure.source}"
        )
    if after is not None and held.total is not None and after + low > held.total:
        return (
            f"{gib(after)} free after the weights, and weights of at least {gib(figure.least)} a "
            f"rank, are more than the {gib(held.total)} of a card"
        )
    if took is None and after is not None and held.free is not None and held.free - after > high:
        return (
            f"{gib(after)} free after the weights mean that at least {gib(held.free - after)} of a "
            f"card were taken, and weights of {gib(figure.least)} to {gib(figure.most)} a rank "
            f"follow from {figure.source}; where something else is on the cards, what is free "
            "before the weights tells it"
        )
    return ""


def loaded(seen: Measured) -> int | None:
    """What loading took of a rank, if figures tell it."""
    if seen.weights is not None or seen.free_before is None or seen.free_after is None:
        return seen.weights
    return seen.free_before - seen.free_after


def of_other_start(
    seen: Measured, manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
) -> str:
    """What a recorded start with exactly these figures of free memory was started with, where that
    makes other weights; "" where there is none, or one of these settings too."""
    if seen.free_before is None or seen.free_after is None:
        return ""
    found = ""
    for start in starts:
        flags, ranks = start.get("flags"), (start.get("ranks") or {}).values()
        then = [least(r.get(f"free_{when}_weights") for r in ranks) for when in ("before", "after")]
        if not isinstance(flags, Mapping) or None in then:
            continue
        now = (seen.free_before, seen.free_after)
        if any(abs((one or 0) - other) > _CENT for one, other in zip(then, now, strict=True)):
            continue
        names = carried.changes(flags, manifest["flags"], {}, {})
        words = [f"{name} {flags.get(name, 'unset')}" for name in names]
        path = (start.get("model") or {}).get("path")
        if path != manifest["model"]["path"]:
            words.insert(0, f"the model {path}")
        if not words:
            return ""
        found = found or ", ".join(words)
    return found


def too_many(whole: Case) -> str:
    """Why the cards cannot hold the measured number of tokens; "" if they can."""
    seen, total = whole.measured, card(whole.hardware)
    if seen.tokens is None or total is None:
        return ""
    took = loaded(seen)
    if took is None:
        took = whole.weights.least if whole.weights is not None else 0
    try:
        found = device(whole)
    except NoForecast:
        return ""
    for one in found:
        size = sum(pool.bytes.value for pool in one.pools if not pool.name.startswith("draft"))
        if size > total - (took or 0):
            beside = f" beside weights of at least {gib(took)}" if took else ""
            return (
                f"{count(seen.tokens)} tokens are {gib(size)} a rank, and a card of {gib(total)} "
                f"cannot hold them{beside}"
            )
    return ""
