"""The verdict on RAM and GPU: ours, and the engine's own test with its races."""

from typing import Any

import pytest

from opsctl.forecast.fit import FITS, NOT, TIGHT, UNKNOWN, judge
from opsctl.forecast.values import (
    COMPUTED,
    Case,
    Device,
    DevicePool,
    Figure,
    Geometry,
    Hardware,
    HostMemory,
    HostPool,
    Latent,
    Measured,
    Other,
)

GIB = 1 << 30
POOL = 44_770_923_648


def case(version: str = "0.5.9", ranks: int = 8, **more: Any) -> Case:
    found: dict[str, Any] = {
        "version": version,
        "flags": {"enable-hierarchical-cache": True},
        "env": {},
        "ranks": tuple(f"TP{n}" for n in range(ranks)),
        "shape": Geometry("", 61, Latent(512, 64), tuple(range(61))),
        "draft": None,
        "hardware": Hardware(ranks),
        "memory": HostMemory(470 * GIB, 449 * GIB),
        "measured": Measured(),
        "weights": None,
        "draft_weights": None,
        "min_available": 32 * GIB,
        **more,
    }
    return Case(**found)


def memory(available: float, **more: Any) -> HostMemory:
    return HostMemory(2 * int(available * GIB), int(available * GIB), **more)


def taken(asked: Case, *sizes: int | None, **more: Any) -> dict[str, tuple[HostPool, ...]]:
    pools = tuple(HostPool("kv", 1, 1, 2.0, None, n, n, n, n, n, **more) for n in sizes)
    return dict.fromkeys(asked.ranks, pools)


def test_the_reference_deployment_has_79_gib_left() -> None:
    found = judge(case(), taken(case(), POOL))
    assert round((found.available_after or 0) / GIB) == 79
    assert found.available_after == 449 * GIB - 8 * (POOL + int(4.5 * GIB))
    assert found.least == found.available_after - 8 * GIB
    assert (found.verdict, found.ram, found.reasons) == (FITS, FITS, ())


@pytest.mark.parametrize(("demanded", "verdict"), [(32, FITS), (75, TIGHT), (80, NOT)])
def test_what_is_demanded(demanded: int, verdict: str) -> None:
    asked = case(min_available=demanded * GIB)
    found = judge(asked, taken(asked, POOL))
    assert found.verdict == verdict
    assert bool(found.reasons) is (verdict != FITS)


def test_every_pool_of_every_rank_counts() -> None:
    """Issue 29263: 4 × (150 + 34.4) GB passed the engine's test and killed the node."""
    asked = case("0.5.14", 4, memory=memory(700))
    found = judge(asked, taken(asked, 150_000_000_000, 34_400_000_000))
    assert found.verdict == NOT


def test_a_measured_process_has_a_smaller_band() -> None:
    asked = case(measured=Measured(process=3 * GIB))
    found = judge(asked, taken(asked, POOL))
    assert found.available_after == 449 * GIB - 8 * (POOL + 3 * GIB)
    assert found.least is not None and found.available_after is not None
    assert found.available_after - found.least == pytest.approx(8 * 0.3 * GIB, abs=16)


def test_other_services_count_and_are_named() -> None:
    failed = Other("glm", 60 * GIB, why="its unit is failed and starts at the next boot")
    asked = case(memory=memory(449, others=(failed, Other("late", GIB // 2))))
    found = judge(asked, taken(asked, POOL))
    assert found.verdict == NOT
    words = "60.00 GiB of RAM are kept for glm: its unit is failed and starts at the next boot"
    assert found.reasons[0] == words and "late" not in " ".join(found.reasons)
    back = case(memory=memory(300, others=(Other("glm", -90 * GIB),)))
    assert "90.00 GiB of RAM come back from glm" in judge(back, taken(back, GIB)).reasons


def test_pools_that_take_more_than_they_say() -> None:
    """0.5.3: 40 GB a rank is 64 GiB pinned; four of them do not fit in 250 GiB."""
    asked = case("0.5.3", 4, memory=memory(250), min_available=10 * GIB)
    pool = HostPool("kv", 1, 1, 2.0, None, 1, 40 * 10**9, 64 * GIB, 64 * GIB, 64 * GIB)
    assert judge(asked, dict.fromkeys(asked.ranks, (pool,))).verdict == NOT


@pytest.mark.parametrize("unknown", [None, ()])
def test_pools_that_are_not_known(unknown: tuple[HostPool, ...] | None) -> None:
    found = judge(case(), {**taken(case(), POOL), "TP3": unknown})
    assert found.verdict == (UNKNOWN if unknown is None else FITS)


def test_what_the_engine_refuses_does_not_fit_even_if_nothing_else_is_known() -> None:
    asked = case(memory=None)
    found = judge(asked, taken(asked, None, refused="0.5.9 refuses it"))
    assert (found.verdict, found.reasons) == (NOT, ("0.5.9 refuses it",))


# -- the engine's own test -------------------------------------------------------------------------


def test_up_to_0_5_18_each_rank_looks_at_all_that_is_free() -> None:
    """Nobody adds up: 8 × 44.77 GB pass, one of 457 GB may not."""
    asked = case("0.5.18", 1, memory=memory(440), min_available=0)
    found = judge(asked, taken(asked, 457 * 10**9))
    assert found.verdict == TIGHT and "0.5.18 may refuse" in found.reasons[0]
    surely = judge(asked, taken(asked, 470 * 10**9))
    assert surely.verdict == NOT and "0.5.18 refuses a host pool of 470.00 GB" in surely.reasons[-1]


def test_since_0_5_19_luck_begins_above_a_share_of_2r_minus_1() -> None:
    """(A − 8 × 5.5 − 10) / 15 is safe whatever the order."""
    safe = int((449 - 44 - 10) / 15 * GIB)
    asked = case("0.5.19")
    assert judge(asked, taken(asked, safe - 1)).verdict == FITS
    found = judge(asked, taken(asked, safe + GIB))
    assert found.verdict == TIGHT and "depending on the order" in found.reasons[0]
    assert judge(case("0.5.18"), taken(asked, safe + GIB)).verdict == FITS


@pytest.mark.parametrize("order", range(3))
def test_the_safe_bound_is_the_last_rank_s(order: int) -> None:
    """Played by hand: ranks take their pools one after the other."""
    ranks, free = 8, (449 - 44 - 10) * GIB
    safe = free // (2 * ranks - 1)
    size, left = safe + (order - 1) * 1000, free
    starts = True
    for _ in range(ranks):
        starts = starts and size <= left // ranks
        left -= size
    assert starts is (order < 2)


def test_surely_refused_since_0_5_19() -> None:
    asked = case("0.5.23", min_available=0)
    found = judge(asked, taken(asked, int(51.7 * GIB)))
    assert found.verdict == NOT and any("refuses a host pool" in why for why in found.reasons)


def test_pools_that_the_engine_sized_are_not_tested_again() -> None:
    asked = case("0.5.21")
    assert judge(asked, taken(asked, 30 * GIB)).verdict == TIGHT
    assert judge(asked, taken(asked, 30 * GIB, auto=True)).verdict == FITS


def test_cgroups_limit_what_is_there_and_since_0_5_21_what_the_engine_sees() -> None:
    asked = case("0.5.9", memory=memory(449, cgroup_headroom=300 * GIB))
    found = judge(asked, taken(asked, POOL))
    assert found.verdict == NOT and "cgroup" in found.reasons[0]
    seen = case("0.5.21", 1, memory=memory(449, cgroup_headroom=60 * GIB), min_available=0)
    assert "refuses" in judge(seen, taken(seen, 50 * GIB)).reasons[-1]
    blind = case("0.5.20", 1, memory=memory(449, cgroup_headroom=60 * GIB), min_available=0)
    assert not any("refuses" in why for why in judge(blind, taken(blind, 50 * GIB)).reasons)


# -- NUMA, huge pages, swap ------------------------------------------------------------------------

HALVES = {"nodes": (224 * GIB, 225 * GIB)}


@pytest.mark.parametrize(
    ("version", "env", "verdict"),
    [
        ("0.5.9", {}, FITS),  # preferred: spills over
        ("0.5.10", {}, TIGHT),  # numactl --membind, if numactl is there
        ("0.5.10", {"SGLANG_NUMA_BIND_V2": "0"}, FITS),
        ("0.5.17", {"SGLANG_AUTO_NUMA_BIND": "0"}, TIGHT),  # not asked before 0.5.18
        ("0.5.18", {"SGLANG_AUTO_NUMA_BIND": "0"}, FITS),
        ("0.5.18", {}, TIGHT),
    ],
)
def test_a_node_that_cannot_hold_its_ranks(version: str, env: dict[str, str], verdict: str) -> None:
    asked = case(version, memory=memory(449, nodes=(180 * GIB, 269 * GIB)), env=env)
    found = judge(asked, taken(asked, POOL))
    assert found.verdict == verdict
    if verdict == TIGHT:
        assert "NUMA node 0" in found.reasons[0]


def test_nodes_that_hold_their_ranks() -> None:
    asked = case("0.5.10", memory=memory(449, **HALVES), min_available=0)
    assert judge(asked, taken(asked, POOL)).verdict == FITS


def test_nodes_by_hand_are_strict() -> None:
    flags = {"enable-hierarchical-cache": True, "numa-node": [0] * 8}
    asked = case("0.5.9", memory=memory(449, **HALVES), flags=flags)
    found = judge(asked, taken(asked, POOL))
    assert found.verdict == NOT and "--numa-node" in found.reasons[0]


def test_what_this_service_holds_now_comes_back_on_the_nodes() -> None:
    asked = case("0.5.10", memory=memory(449, nodes=(40 * GIB, 40 * GIB)), min_available=0)
    assert judge(asked, taken(asked, POOL)).verdict == FITS


def test_huge_pages_are_never_available_unless_the_pools_lie_in_them() -> None:
    reserved = memory(80, hugepages=400 * GIB)
    asked = case("0.5.13", memory=reserved, min_available=10 * GIB)
    assert judge(asked, taken(asked, POOL)).verdict == NOT
    used = case(
        "0.5.13", memory=reserved, env={"SGLANG_HUGEPAGE_SIZE": "2MB"}, min_available=10 * GIB
    )
    assert judge(used, taken(used, POOL)).available_after == 80 * GIB - 8 * int(4.5 * GIB)
    assert judge(used, taken(used, 2 * POOL)).verdict == NOT  # more than are reserved


@pytest.mark.parametrize(("swap", "verdict"), [("forbid", TIGHT), ("allow", FITS), ("", FITS)])
def test_swap_in_use(swap: str, verdict: str) -> None:
    asked = case(memory=memory(449, swap_total=8 * GIB, swap_used=GIB))
    found = judge(asked, taken(asked, POOL), swap=swap)
    assert found.verdict == verdict and "swap" in found.reasons[0]


# -- GPU -------------------------------------------------------------------------------------------


def figure(value: float, band: float = 0.0) -> Figure:
    return Figure(
        int(value * GIB), int((value - band) * GIB), int((value + band) * GIB), COMPUTED, ""
    )


def device(rest: Figure | None, reserve: float = 11.29, kv: float = 10.42) -> Device:
    tokens = Figure(159277, 159277, 159277, COMPUTED, "")
    pools = (DevicePool("kv", tokens, 70272, figure(kv)),)
    return Device(tokens, 0, 70272, 1, 0.88, figure(reserve), rest, pools, None)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (device(figure(10.42)), FITS),
        (device(figure(-2.0)), NOT),
        (device(figure(0.1, 0.2), kv=0.1), TIGHT),
        (device(None), UNKNOWN),
        (device(figure(10.42), reserve=0.5), TIGHT),  # graphs would not fit beside
        (device(figure(10.42), reserve=1.0, kv=12.0), NOT),  # rows larger than counted
    ],
)
def test_the_gpu(found: Device, verdict: str) -> None:
    judged = judge(case(), taken(case(), POOL), (found,))
    assert (judged.gpu, judged.ram, judged.verdict) == (verdict, FITS, verdict)


def test_a_start_that_was_seen_fits_its_gpus() -> None:
    asked = case(measured=Measured(tokens=159277))
    assert judge(asked, taken(asked, POOL), (device(figure(-2.0)),)).gpu == FITS


def test_the_node_of_each_gpu_is_asked_where_it_is_known() -> None:
    """Six of eight GPUs hang on node 0."""
    cards = Hardware(8, nodes=(0, 0, 0, 0, 0, 0, 1, 1))
    asked = case("0.5.10", memory=memory(449, **HALVES), hardware=cards, min_available=0)
    assert judge(asked, taken(asked, POOL)).verdict == TIGHT
