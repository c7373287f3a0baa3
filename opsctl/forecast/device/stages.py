"""Which layers each pipeline stage owns.

Source: distributed/utils.py `get_pp_indices` of all releases. Layers that are left over go to the
last stages, one each; up to 0.5.5.post3 all of them to the very last.
"""

from __future__ import annotations

from functools import cache

from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import NoForecast

PARTITION = "SGLANG_PP_LAYER_PARTITION"


def runs(layers: int, settings: Settings) -> tuple[tuple[int, int], ...]:
    """(first, end) of each stage. Raises NoForecast if the partition by hand does not add up."""
    by_hand = settings.env.get(PARTITION) if settings.pp > 1 else None
    if by_hand:
        return _by_hand(layers, settings.pp, by_hand)
    return _even(layers, settings.pp, settings.key < (0, 5, 6))


@cache
def _even(layers: int, stages: int, last_takes_all: bool) -> tuple[tuple[int, int], ...]:
    base, extra = divmod(layers, stages)
    found, start = [], 0
    for stage in range(stages):
        more = 1 if stage >= stages - extra else 0
        if last_takes_all:
            more = extra if stage == stages - 1 else 0
        found.append((start, start + base + more))
        start += base + more
    return tuple(found)


def _by_hand(layers: int, stages: int, text: str) -> tuple[tuple[int, int], ...]:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        raise NoForecast(f"{PARTITION} is no list of whole numbers: {text}") from None
    if len(sizes) != stages or sum(sizes) != layers:
        raise NoForecast(f"{PARTITION} {text} does not split {layers} layers over {stages} stages")
    ends = [sum(sizes[: n + 1]) for n in range(stages)]
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


def hosted(ranks: tuple[str, ...], stages: int) -> tuple[int, ...]:
    """Stages that have a rank on this host, by the labels of engine/ranks.py."""
    if stages == 1:
        return (0,)
    found = {int(part[2:]) for rank in ranks for part in rank.split() if part.startswith("PP")}
    return tuple(sorted(found)) or tuple(range(stages))
