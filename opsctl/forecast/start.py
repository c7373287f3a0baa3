"""How long a start takes, by phase, and the longest that it may take before it is given up.

A phase that earlier starts of the same model here measured is told as measured, if what it depends
on is alike: the page cache for weights, compiled kernels for graphs, the size of the pools for
pinning. Its band is then their spread, which is widened the less the more of them there are. Else
it is estimated from sizes and the rates in pace.py. Seconds are whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from opsctl.forecast import pace
from opsctl.forecast.evaluate import Result
from opsctl.forecast.pace import Band
from opsctl.forecast.values import ESTIMATED, MEASURED, Beginning, Case, Earlier, Figure
from opsctl.onhost.expect import span
from opsctl.onhost.startup import TIMING

# A start whose share of cached files differed by more was another kind of start.
ALIKE = 0.1
Alike = Callable[[Earlier], bool]
PHASES = (
    "launch", "dist", "weights", "draft_weights", "kv", "draft_kv", "graphs", "draft_graphs",
    "host_pools", "warmup",
)  # fmt: skip


def seconds(case: Case, result: Result) -> dict[str, Figure]:
    """Seconds by phase until the engine says that it is ready, in the order of PHASES. A phase
    that is missing does not come up; weights of unknown size are missing too: see `total`."""
    found: dict[str, Figure | None] = {
        "launch": _usual(case, "launch", pace.LAUNCH, "processes and imports"),
        "dist": _dist(case),
        "weights": _weights(case),
        "draft_weights": _draft_weights(case),
        "kv": _usual(case, "kv", pace.KV, "allocation of the pools"),
        "draft_kv": _usual(case, "draft_kv", pace.KV, "") if case.draft else None,
        "graphs": _graphs(case),
        "draft_graphs": _draft_graphs(case),
        "host_pools": _pinning(case, result),
        "warmup": _usual(case, "warmup", pace.WARMUP, "the HTTP process and a first request"),
    }
    return {name: figure for name in PHASES if (figure := found[name]) is not None}


def total(phases: Mapping[str, Figure]) -> Figure | None:
    """The sum; None if the time of the weights is not known, which is most of it."""
    if "weights" not in phases:
        return None
    parts = list(phases.values())
    measured = all(part.basis == MEASURED for part in parts)
    return Figure(
        sum(part.value for part in parts),
        sum(part.least or 0 for part in parts),
        sum(part.most or 0 for part in parts),
        MEASURED if measured else ESTIMATED,
        "sum of the phases",
    )


# -- phases ---------------------------------------------------------------------------------------


def _took(case: Case, phase: str, alike: Alike = lambda one: True) -> list[float]:
    """Seconds of a phase in the earlier starts that were `alike` in what it depends on."""
    seen = case.measured
    newest = Earlier(seen.seconds, seen.cached, seen.kernels, seen.pinned)
    return [
        one.seconds[phase]
        for one in seen.earlier or (newest,)
        if phase in one.seconds and alike(one)
    ]


def _usual(case: Case, phase: str, band: Band, what: str) -> Figure:
    took = _took(case, phase)
    return _measured(took) if took else _figure(band, what or "as such phases usually take")


def _measured(took: Sequence[float]) -> Figure:
    """Whole seconds, and one of them either way for the clock of the log."""
    more = pace.MEASURED / len(took)
    many = "an earlier start here" if len(took) == 1 else f"{len(took)} earlier starts here"
    return Figure(
        round(median(took)),
        max(0, math.floor(min(took) * (1 - more)) - 1),
        math.ceil(max(took) * (1 + more)) + 1,
        MEASURED,
        many,
    )


def _figure(band: Band, source: str) -> Figure:
    return Figure(
        round(band.likely), math.floor(band.least), math.ceil(band.most), ESTIMATED, source
    )


def _dist(case: Case) -> Figure:
    alone = int(case.flags.get("tp-size") or 1) * int(case.flags.get("pp-size") or 1) == 1
    return _usual(case, "dist", pace.DIST_ONE if alone else pace.DIST, "the ranks find each other")


def _weights(case: Case) -> Figure | None:
    """Measured, if as much was in the page cache then as is now; else by reading, and no quicker
    than a start that had more there."""
    now = case.beginning
    alike = _took(case, "weights", lambda one: _near(one.cached, now.cached))
    if alike:
        return _measured(alike)
    took, then = case.measured.seconds.get("weights"), case.measured.cached
    reading = _reading(now, now.model_bytes)
    if took is None:
        return reading
    if then is None or now.cached is None:
        most = math.ceil(4 * took) if reading is None else reading.most or 0
        slowest = max(most, _measured([took]).most or 0)
        source = "an earlier start, if as much is in the page cache"
        return Figure(round(took), 0, slowest, ESTIMATED, source)
    if reading is None:
        return _measured([took])
    if now.cached > then:
        return reading
    least = math.floor(took * (1 - pace.MEASURED))
    likely, most = max(reading.value, round(took)), max(reading.most or 0, math.ceil(took))
    return Figure(likely, least, most, ESTIMATED, reading.source)


def _near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= ALIKE


def _reading(now: Beginning, size: int | None) -> Figure | None:
    """Reading `size` bytes, some from the page cache, the rest from where they lie."""
    if not size:
        return None
    disk, source = _rate(now)
    low, high = (now.cached, now.cached) if now.cached is not None else (0.0, 1.0)
    likely = (1 - low) * size / disk.likely + low * size / pace.CACHED.likely
    least = (1 - high) * size / disk.most + high * size / pace.CACHED.most
    most = (1 - low) * size / disk.least + low * size / pace.CACHED.least
    share = "an unknown part" if now.cached is None else f"{now.cached:.0%}"
    return _figure(
        Band(likely, least, most), f"{size / 1e9:.0f} GB, {share} in the page cache, {source}"
    )


def _rate(now: Beginning) -> tuple[Band, str]:
    if now.loaded:
        rate = float(now.loaded)
        return Band(rate, rate / 2, rate * 2), f"{rate / 1e9:.1f} GB/s as in an earlier start"
    kind = now.storage or "unknown storage"
    return pace.READ.get(now.storage, pace.UNKNOWN), f"the usual rate of {kind}"


def _draft_weights(case: Case) -> Figure | None:
    if case.draft is None:
        return None
    if took := _took(case, "draft_weights"):
        return _measured(took)
    return _reading(case.beginning, case.beginning.draft_bytes) or _figure(
        pace.DRAFT, "a draft whose files were not seen"
    )


def _graphs(case: Case) -> Figure | None:
    """Kernels are compiled where graphs are captured, if they are not in the caches."""
    if case.flags.get("disable-cuda-graph") or case.hardware.vendor == "cpu":
        return None
    now, then = case.beginning.kernels, case.measured.kernels
    alike = _took(case, "graphs", lambda one: one.kernels is (now or False))
    # Where it is not known whether kernels are there: if several starts have left none for the one
    # after them, then no start here leaves any, be it that nothing is compiled or nothing kept.
    if alike and (now is not None or len(alike) > 1):
        return _measured(alike)
    took = case.measured.seconds.get("graphs")
    if took is None:
        return _capturing(now)
    same = _measured([took])
    longest = (same.most or 0) + (0 if now else round(pace.COMPILING.most))
    likely = took
    if now and then is False:  # it compiled then, and need not now
        likely = min(took, pace.GRAPHS.likely)
    elif then and now is False:
        likely = took + pace.COMPILING.likely
    least = min(likely, pace.GRAPHS.least)
    return _figure(Band(likely, least, longest), "an earlier start, and whether kernels are kept")


def _capturing(warm: bool | None) -> Figure:
    if warm:
        return _figure(pace.GRAPHS, "compiled kernels are in the caches")
    what = "kernels may have to be compiled" if warm is None else "kernels are compiled first"
    band = Band(
        pace.GRAPHS.likely + (0.0 if warm is None else pace.COMPILING.likely),
        pace.GRAPHS.least,
        pace.GRAPHS.most + pace.COMPILING.most,
    )
    return _figure(band, what)


def _draft_graphs(case: Case) -> Figure | None:
    if case.draft is None or _graphs(case) is None:
        return None
    return _usual(case, "draft_graphs", pace.DRAFT_GRAPHS, "")


def _pinning(case: Case, result: Result) -> Figure | None:
    """Allocating, touching and pinning the host pools. All ranks do it at once and share the
    host's memory and its driver's locks."""
    size = result.host_total
    if not case.flags.get("enable-hierarchical-cache") or size == 0:
        return None
    if size is None:
        return _figure(Band(30, 0, 600), "host pools of unknown size")
    alike = _took(
        case, "host_pools", lambda one: abs(size - (one.pinned or 0)) <= ALIKE * (one.pinned or 0)
    )
    if alike:
        return _measured(alike)
    took, before = case.measured.seconds.get("host_pools"), case.measured.pinned
    if took is not None and before:
        scaled = _measured([took * size / before])
        band = Band(took * size / before, (scaled.least or 0) / 1.5, (scaled.most or 0) * 1.5)
        return _figure(band, f"{size / 1e9:.0f} GB to pin, at the pace of an earlier start")
    ranks = len(case.ranks)
    rates = [
        min(getattr(pace.PIN_RANK, side) * ranks, getattr(pace.PIN_HOST, side))
        for side in Band._fields
    ]
    return _figure(
        Band(size / rates[0], size / rates[2], size / rates[1]), f"{size / 1e9:.0f} GB to pin"
    )


# -- the cap --------------------------------------------------------------------------------------

LEAST_CAP = 900
STEP = 600  # caps are whole tens of minutes: they are read by people


def cap(phases: Mapping[str, Figure]) -> int:
    """Seconds after which a start is given up, however much it still moves: half as long again as
    its slowest forecast, and three times the likely one. A hung start ends by timing.stall, long
    before; this is for one that moves for ever."""
    whole = total(phases)
    if whole is None or whole.most is None:
        return int(TIMING["cap"])
    longest = max(LEAST_CAP, 1.5 * whole.most, 3 * whole.value)
    return STEP * math.ceil(longest / STEP)


def too_short(phases: Mapping[str, Figure], timing: Mapping[str, Any]) -> str:
    """Why the owner's timing.cap may end a start that is well; "" if it will not, or if there is
    none: `timing` is the manifest's."""
    whole, given = total(phases), _given(timing)
    if whole is None or whole.most is None or given is None or whole.most <= given:
        return ""
    certain = "takes" if whole.least is not None and whole.least > given else "may take"
    return (
        f"a start {certain} {span(whole.value)} ({span(whole.least or 0)} to {span(whole.most)}), "
        f"and timing.cap ends it after {span(given)}"
    )


def _given(timing: Mapping[str, Any]) -> float | None:
    return None if timing.get("cap_of") == "forecast" else timing.get("cap")


def expected(phases: Mapping[str, Figure], timing: Mapping[str, Any]) -> dict[str, Any] | None:
    """release.json's "expect"."start": what a watcher compares a start with, and the cap of the
    guard where the owner has set none. None where nothing is known."""
    whole = total(phases)
    if whole is None:
        return None
    told: dict[str, Any] = {"seconds": whole.value, "least": whole.least, "most": whole.most}
    return told if _given(timing) is not None else {**told, "cap": cap(phases)}
