"""Start times: every public duration that was found lies in its band; what was measured here is
told as measured where it is alike; and the cap that follows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsctl.forecast import start
from opsctl.forecast.evaluate import Result
from opsctl.forecast.standing import still_holds
from opsctl.forecast.values import (
    ESTIMATED,
    MEASURED,
    Beginning,
    Case,
    Earlier,
    Figure,
    Geometry,
    Hardware,
    Heads,
    Measured,
)
from opsctl.onhost.expect import GiB

SHAPE = Geometry("X", 1, Heads(1, 1, 1), (0,))
GB = 10**9
UNSEEN = Beginning()
OWN = {"cap": 5400.0, "cap_of": "description"}
FORECAST = {"cap": 5400.0, "cap_of": "forecast"}


def case(
    ranks: int = 8,
    beginning: Beginning = UNSEEN,
    seconds: dict[str, float] | None = None,
    cached: float | None = None,
    vendor: str = "nvidia",
    **flags: Any,
) -> Case:
    return Case(
        version="0.5.9",
        flags={"tp-size": ranks, "enable-hierarchical-cache": True, **flags},
        env={},
        ranks=tuple(f"TP{n}" for n in range(ranks)),
        shape=SHAPE,
        draft=SHAPE,
        hardware=Hardware(vendor=vendor),
        memory=None,
        measured=Measured(seconds=seconds or {}, cached=cached),
        weights=None,
        draft_weights=None,
        min_available=0,
        beginning=beginning,
    )


def result(host_total: int | None = 0) -> Result:
    return cast(Result, SimpleNamespace(host_total=host_total))


def holds(figure: Figure, seconds: float) -> bool:
    assert figure.least is not None and figure.most is not None
    assert figure.least <= figure.value <= figure.most
    return figure.least <= seconds <= figure.most


# bytes, share in the page cache, storage, seconds; where it is from
LOADED = [
    (547 * GB, None, "", 606.0, "Kimi-K2.5 on 8 x MI355X, public log, fastest rank"),
    (547 * GB, None, "", 618.0, "the same, slowest rank"),
    (int(8 * 89.58 * GiB), None, "", 228.0, "GLM-5-FP8, public log, fastest rank"),
    (int(8 * 89.58 * GiB), None, "", 888.0, "the same, slowest rank"),
    (int(65.5 * GB), None, "network", 258.0, "sglang#7469: Qwen3-32B, mapped files"),
    (int(65.5 * GB), None, "network", 32.0, "sglang#7469: the same without mapping"),
    (688 * GB, None, "", 65.0, "sglang#6017: DeepSeek-V3, 163 shards"),
    (int(16.06 * GB), None, "", 2.36, "sglang#21880: Llama-3.1-8B"),
    (158 * GB, 1.0, "nvme", 25.4, "vllm-omni#4896: 2 x RTX PRO 6000, page cache"),
    (158 * GB, 1.0, "nvme", 30.7, "the same, with all that belongs to the load"),
]


@pytest.mark.parametrize(("size", "cached", "storage", "took", "source"), LOADED)
def test_public_loads_of_weights_lie_in_the_band(
    size: int, cached: float | None, storage: str, took: float, source: str
) -> None:
    found = start.seconds(case(beginning=Beginning(size, 0, cached, storage)), result())
    assert holds(found["weights"], took), (source, found["weights"])
    assert found["weights"].basis == ESTIMATED


# ranks, bytes of all pools, seconds; where it is from
PINNED = [
    (8, 960 * GB, 59.0, "8 x 120 GB, public log"),
    (4, int(4 * (153.81 + 35.25) * GB), 40.0, "GLM-5.2 with its indexer, public log"),
    (4, int(4 * (153.81 + 35.25) * GB), 50.0, "the same, slowest rank"),
    (1, 30 * GiB, 15.68, "pegaflow#275: one process"),
    (1, 700 * GB, 720.0, "TensorRT-LLM#17773: one call, the driver's locks held"),
]


@pytest.mark.parametrize(("ranks", "size", "took", "source"), PINNED)
def test_public_pinnings_lie_in_the_band(ranks: int, size: int, took: float, source: str) -> None:
    found = start.seconds(case(ranks), result(size))
    assert holds(found["host_pools"], took), (source, found["host_pools"])


def test_pools_are_pinned_at_the_pace_of_an_earlier_start() -> None:
    seen = case(8, seconds=BEFORE)
    seen = replace(seen, measured=replace(seen.measured, pinned=179 * GB))
    same = start.seconds(seen, result(179 * GB))["host_pools"]
    assert (same.value, same.basis) == (25, MEASURED)
    twice = start.seconds(seen, result(358 * GB))["host_pools"]
    assert (twice.value, twice.basis) == (50, ESTIMATED)
    assert (twice.least or 0) < 30 and (twice.most or 0) > 80


def test_the_reference_pins_in_about_25_seconds() -> None:
    assert start.seconds(case(), result(358 * GB))["host_pools"].value == 24
    assert "host_pools" not in start.seconds(case(), result(0))
    assert start.seconds(case(), result(None))["host_pools"].most == 600


# kernels are there, seconds; where it is from
CAPTURED: list[tuple[bool | None, float, str]] = [
    (True, 21.0, "Kimi-K2.5, 8 ranks"),
    (True, 13.67, "sglang#4339: 23 batch sizes"),
    (True, 1.0, "sglang#21880: 8 batch sizes"),
    (None, 1334.0, "a public report of graphs that took very long"),
    (False, 600.0, "DeepGEMM's own words: 10 to 20 minutes"),
    (False, 1200.0, "the same"),
    (False, 202.0, "vllm#47456: DeepGEMM and FlashInfer, cold"),
    (False, 780.0, "flashinfer#4110: fp4_gemm"),
]


@pytest.mark.parametrize(("warm", "took", "source"), CAPTURED)
def test_public_graphs_lie_in_the_band(warm: bool | None, took: float, source: str) -> None:
    found = start.seconds(case(beginning=Beginning(kernels=warm)), result())
    assert holds(found["graphs"], took), (source, found["graphs"])


# ranks, bytes, cached, storage, kernels, vendor, seconds from the first line to ready
WHOLE = [
    (1, int(65.5 * GB), 0.0, "nvme", True, "nvidia", 38.94, "sglang#32017: Qwen3-32B, H100"),
    (2, int(65.5 * GB), 0.0, "nvme", True, "nvidia", 51.12, "sglang#32017: the same, TP 2"),
    (1, 3_000_000, None, "", None, "cpu", 31.0, "0.5.9 on a CPU, with a host tier"),
    (1, 3_000_000, None, "", None, "cpu", 36.0, "0.5.9 on a CPU"),
    (1, 3_000_000, None, "", None, "cpu", 38.0, "0.5.23 on a CPU"),
    (8, 547 * GB, 0.0, "nvme", True, "nvidia", 711.0, "the reference's phases: public, 0.5.9"),
]


@pytest.mark.parametrize(
    ("ranks", "size", "cached", "storage", "warm", "vendor", "took", "source"), WHOLE
)
def test_whole_starts_lie_in_the_band(
    ranks: int,
    size: int,
    cached: float | None,
    storage: str,
    warm: bool | None,
    vendor: str,
    took: float,
    source: str,
) -> None:
    seen = case(ranks, Beginning(size, None, cached, storage, None, warm), vendor=vendor)
    whole = start.total(start.seconds(replace(seen, draft=None), result()))
    assert whole is not None and holds(whole, took), (source, whole)
    assert ("graphs" in start.seconds(seen, result())) is (vendor != "cpu")


BEFORE = {"launch": 15.0, "dist": 13.0, "weights": 618.0, "kv": 2.0, "graphs": 24.0,
          "draft_weights": 4.0, "draft_kv": 2.0, "draft_graphs": 4.0, "host_pools": 25.0,
          "warmup": 4.0, "total": 711.0}  # fmt: skip


def test_an_earlier_start_is_told_as_measured_where_it_is_alike() -> None:
    now = Beginning(547 * GB, 6 * GB, 0.05, "nvme", None, True)
    seen = case(8, now, BEFORE, 0.0)
    seen = replace(seen, measured=replace(seen.measured, kernels=True))
    found = start.seconds(seen, result(358 * GB))
    assert {name: f.value for name, f in found.items() if name != "host_pools"} == {
        name: round(took) for name, took in BEFORE.items() if name not in ("host_pools", "total")
    }
    assert {f.basis for name, f in found.items() if name != "host_pools"} == {MEASURED}
    whole = start.total(found)
    assert whole is not None and holds(whole, 711.0)


def test_the_page_cache_decides_whether_weights_are_alike() -> None:
    def weights(then: float | None, now: float | None) -> Figure:
        seen = case(8, Beginning(547 * GB, None, now, "nvme"), BEFORE, then)
        return start.seconds(seen, result())["weights"]

    assert weights(0.0, 0.9).value < 200 and weights(0.0, 0.9).basis == ESTIMATED
    assert weights(0.9, 0.0).value >= 618 and weights(0.9, 0.0).basis == ESTIMATED
    assert weights(None, 0.9).value == 618 and weights(None, 0.9).basis == ESTIMATED
    assert weights(0.5, 0.55).basis == MEASURED


def test_a_disk_that_was_measured_counts_more_than_its_kind() -> None:
    slow = Beginning(547 * GB, None, 0.0, "nvme", loaded=GB // 2)
    assert start.seconds(case(8, slow), result())["weights"].value == 1094


# kernels were there then, are there now → seconds after a start that took 600; basis
KEPT: list[tuple[bool | None, bool | None, int, str]] = [
    (True, True, 600, MEASURED),
    (False, True, 20, ESTIMATED),  # it compiled then
    (None, True, 600, ESTIMATED),
    (True, False, 840, ESTIMATED),
    (False, False, 600, MEASURED),  # it compiles as it did then, or there is nothing to compile
    (None, None, 600, ESTIMATED),
]


@pytest.mark.parametrize(("then", "now", "took", "basis"), KEPT)
def test_graphs_depend_on_compiled_kernels(
    then: bool | None, now: bool | None, took: int, basis: str
) -> None:
    seen = case(8, Beginning(547 * GB, None, 0.0, "nvme", None, now), BEFORE | {"graphs": 600.0})
    seen = replace(seen, measured=replace(seen.measured, kernels=then))
    found = start.seconds(seen, result())["graphs"]
    assert (found.value, found.basis) == (took, basis)
    if now and not then:
        assert holds(found, 20) and holds(found, 600)
    if not now and basis == ESTIMATED:
        assert holds(found, 600) and holds(found, 1800)


def test_without_the_size_of_the_model_nothing_is_summed_up() -> None:
    found = start.seconds(case(), result())
    assert "weights" not in found and start.total(found) is None
    assert start.cap(found) == 5400
    assert start.too_short(found, OWN | {"cap": 10.0}) == ""
    assert start.expected(found, FORECAST) is None


def figures(value: int, least: int, most: int) -> dict[str, Figure]:
    return {"weights": Figure(value, least, most, ESTIMATED, "")}


CAPS = [
    (figures(20, 10, 60), 1200),  # never below 15 minutes, whole tens of minutes
    (figures(711, 530, 890), 2400),  # three times the likely
    (figures(300, 50, 3000), 4800),  # half as long again as the slowest
    (figures(9000, 900, 20000), 30000),
]


@pytest.mark.parametrize(("phases", "wanted"), CAPS)
def test_the_cap_follows_from_the_forecast(phases: dict[str, Figure], wanted: int) -> None:
    assert start.cap(phases) == wanted
    told = start.expected(phases, FORECAST)
    assert told is not None and told["cap"] == wanted
    assert "cap" not in (start.expected(phases, OWN) or {})


def test_a_cap_of_the_owners_that_is_too_short_is_told() -> None:
    phases = figures(711, 530, 890)

    def told(cap: float) -> str:
        return start.too_short(phases, OWN | {"cap": cap})

    assert told(5400) == ""
    assert told(800).startswith("a start may take 11 min 51 s (8 min 50 s to 14 min 50 s)")
    assert told(800).endswith("timing.cap ends it after 13 min 20 s")
    assert told(300).startswith("a start takes 11 min 51 s")
    assert start.too_short(phases, FORECAST | {"cap": 300.0}) == ""


def test_a_standing_cap_stays_while_it_gives_enough_time() -> None:
    """Else the page cache would make every deployment a change."""

    def expect(cap: int | None) -> dict[str, Any]:
        kv = {"tokens": 1, "min": 1, "max": 1, "bytes_per_token": 1}
        known = {"start": None if cap is None else {"cap": cap}}
        return {"kv": kv, "host_pools": [], "available_after": 1, "available_least": 1, **known}

    for old, new, holds_still in (
        (2400, 2400, True),
        (7200, 1200, True),
        (1200, 1800, False),
        (None, 1800, False),
        (None, None, True),
        (7200, None, True),  # nothing is told any more: no news
    ):
        assert still_holds(expect(old), expect(new)) is holds_still, (old, new)


def several(*taken: float, kernels: bool | None = False, now: bool | None = False) -> Figure:
    """The sum after starts that were alike and took 100 s, and these for graphs."""
    times = {name: 100.0 for name in BEFORE if name != "total"}
    times["graphs"] = taken[0]
    seen = case(8, Beginning(547 * GB, None, 0.5, "nvme", None, now), times, 0.5)
    earlier = tuple(Earlier({**times, "graphs": took}, 0.5, kernels, 100 * GB) for took in taken)
    known = replace(seen.measured, kernels=kernels, pinned=100 * GB, earlier=earlier)
    found = start.seconds(replace(seen, measured=known), result(100 * GB))
    whole = start.total(found)
    assert whole is not None
    return whole


def width(figure: Figure) -> int:
    return (figure.most or 0) - (figure.least or 0)


def test_the_band_after_several_starts_is_their_spread() -> None:
    """A band of half an hour after three starts of three seconds helped nobody."""
    one, three = several(20.0), several(20.0, 22.0, 18.0)
    assert one.basis == three.basis == MEASURED
    assert width(three) < width(one) / 2
    assert holds(three, 900 + 18) and holds(three, 900 + 22)
    scattered = several(20.0, 200.0, 18.0)
    assert holds(scattered, 900 + 200) and width(scattered) > 180


def test_starts_that_leave_no_kernels_behind_are_believed_after_the_second() -> None:
    """An engine that compiles nothing, or keeps nothing: its caches stay empty for ever."""
    assert several(20.0, now=None).basis == ESTIMATED
    found = several(20.0, 22.0, now=None)
    assert found.basis == MEASURED and width(found) < 600
    assert several(20.0, 22.0, kernels=True, now=None).basis == ESTIMATED


def test_a_start_that_compiled_tells_nothing_of_one_that_need_not() -> None:
    found = several(600.0, kernels=False, now=True)
    assert found.basis == ESTIMATED and holds(found, 900 + 20) and holds(found, 900 + 600)
