"""The host's answer to `facts` → memory with this service stopped, GPUs, and what a start finds."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast import hostside
from opsctl.forecast.host.memory import PROCESS
from opsctl.forecast.values import AFTER, ANY, BEFORE
from opsctl.onhost.expect import GiB

MEMORY = {"total": 449 * GiB, "available": 78 * GiB, "swap_total": 8 * GiB, "swap_used": GiB}
POOL = 44_770_000_000
RUNNING = {
    "invocation": "i",
    "ranks": {f"TP{n}": {"host_pools": [{"name": "kv", "bytes": POOL}]} for n in range(8)},
}


def manifest(gpus: list[int] | None = None, **flags: Any) -> dict[str, Any]:
    return {"engine": {"version": "0.5.9"}, "flags": flags, "gpus": gpus}


# what is told beside memory → MemAvailable with the service stopped, less what is available now
HELD = [
    ({}, 0),
    ({"service_memory": {"bytes": 5 * GiB}}, 5 * GiB),
    ({"running": RUNNING, "service_memory": {"bytes": 8 * POOL + GiB}}, 8 * POOL + GiB),
    # a count below the pools (huge pages, a rehearsal) is not believed
    ({"running": RUNNING, "service_memory": {"bytes": GiB}}, 8 * (POOL + PROCESS)),
    (
        {
            "running": RUNNING,
            "service_memory": {"bytes": GiB},
            "starts": [
                {"invocation": "x", "process": 9 * GiB},
                {"invocation": "i", "process": 3 * GiB},
            ],
        },
        8 * (POOL + 3 * GiB),
    ),
    # no guard has seen this start (a hand's): a record of its release, its settings, its ranks
    *(
        (
            {
                "running": RUNNING,
                "standing": {"manifest": {"digest": "d", "gpu_key": "k"}},
                "starts": [
                    {"invocation": "z", "process": 9 * GiB, "ranks": {"TP0": {}}},
                    {"invocation": "y", "process": None, "digest": "d"},
                    {"invocation": "x", "process": 3 * GiB, **like},
                ],
            },
            8 * (POOL + 3 * GiB),
        )
        for like in ({"digest": "d"}, {"gpu_key": "k"}, {"ranks": RUNNING["ranks"]})
    ),
]


@pytest.mark.parametrize(("told", "comes_back"), HELD)
def test_what_the_service_holds_comes_back(told: dict[str, Any], comes_back: int) -> None:
    found = hostside.memory({"memory": MEMORY, **told})
    assert found is not None and found.available == 78 * GiB + comes_back
    assert (found.total, found.swap_total, found.swap_used) == (449 * GiB, 8 * GiB, GiB)


def test_without_memory_nothing_is_told() -> None:
    assert hostside.memory({}) is None


CHAINS = [
    ([], 0, None),
    ([{"limit": 100, "used": 30}], 0, 70),
    ([{"limit": 100, "used": 30}, {"limit": 60, "used": 30}], 0, 30),
    ([{"limit": 100, "used": 80}], 60, 80),  # 60 of the 80 are the service's own
    ([{"limit": 10, "used": 30}], 0, 0),
]


@pytest.mark.parametrize(("chain", "mine", "wanted"), CHAINS)
def test_the_tightest_control_group_counts(
    chain: list[dict[str, int]], mine: int, wanted: int | None
) -> None:
    assert hostside.headroom(chain, mine) == wanted


def test_nodes_that_are_not_this_memory_say_nothing() -> None:
    half = {"total": 224 * GiB, "available": 200 * GiB}
    assert hostside.nodes([half, half], MEMORY) == (200 * GiB, 200 * GiB)
    assert hostside.nodes([{"total": 24 * GiB, "available": GiB}], MEMORY) == ()
    assert hostside.nodes([], MEMORY) == ()


def other(**changed: Any) -> dict[str, Any]:
    return {
        "service": "glm", "state": "active", "enabled": "enabled", "standing": True,
        "expected": 100 * GiB, "ranks": 2, "held": 20 * GiB, **changed,
    }  # fmt: skip


OTHERS = [
    (other(), 80 * GiB + 2 * PROCESS),  # still starting: it holds a fifth of its pools
    (other(held=200 * GiB), 0),
    (other(held=1, pinned=100 * GiB), 0),  # ready: the kernel's count leaves its pools out
    (other(held=1, pinned=99 * GiB), GiB),
    (other(expected=None, held=0), 2 * PROCESS),
    (other(state="inactive", enabled="disabled", held=0), 0),  # somebody stopped it
    (other(state="inactive", enabled="enabled", held=0), 100 * GiB + 2 * PROCESS),  # at boot
    (other(state="inactive", enabled="", standing=False, held=0), 100 * GiB + 2 * PROCESS),
]


@pytest.mark.parametrize(("one", "left"), OTHERS)
def test_what_other_services_will_still_take(one: dict[str, Any], left: int) -> None:
    found = [(each.service, each.bytes) for each in hostside.others([one])]
    assert found == ([("glm", left)] if left else [])


@pytest.mark.parametrize(
    ("changed", "when", "words"),
    [
        ({}, ANY, "its unit is active, and holds less"),
        ({"state": "failed"}, ANY, "its unit is failed and starts at the next boot (opsctl remove"),
        ({"state": "inactive", "enabled": "", "standing": False}, ANY, "staged and was never"),
        ({"settled": True}, BEFORE, "deployed before"),
        ({"after": True}, AFTER, "deployed after"),
    ],
)
def test_what_is_kept_for_others_is_told_with_its_reason(
    changed: dict[str, Any], when: str, words: str
) -> None:
    (found,) = hostside.others([other(**changed)])
    assert found.when == when and words in found.why


def card(index: int, **changed: Any) -> dict[str, Any]:
    return {
        "index": index, "name": "RTX PRO 6000", "memory_total": 96 * GiB, "state": "ok",
        "vendor": "nvidia", "capability": [12, 0], "node": index // 2,
        "link": {"generation": 5, "width": 16}, **changed,
    }  # fmt: skip


def test_only_this_services_gpus_count_and_the_worst_of_them() -> None:
    cards = [card(n) for n in range(4)]
    cards[1] |= {"memory_total": 90 * GiB, "link": {"generation": 4, "width": 16}}
    cards[3] |= {"memory_total": GiB, "link": {"generation": 1, "width": 1}}
    found = hostside.hardware(manifest([0, 1, 2]), {"gpus": cards})
    assert (found.count, found.total, found.capability) == (3, 90 * GiB, (12, 0))
    assert (found.link, found.nodes, found.vendor) == ((4, 16), (0, 0, 1), "nvidia")


def test_gpus_that_tell_little_give_little() -> None:
    """As nvidia-smi of an old driver, a lost card, or figures that were typed."""
    cards = [{"index": 0, "name": "X", "memory_total": None, "state": "ok"}, card(1, state="lost")]
    found = hostside.hardware(manifest(), {"gpus": cards})
    assert (found.count, found.total, found.capability) == (2, None, None)
    assert found.nodes == () and found.link == (5, 16)
    assert hostside.hardware(manifest([0, 1]), {}).count == 2


def test_the_vendor_follows_cards_and_device() -> None:
    amd = [card(0, vendor="amd", capability=None)]
    assert hostside.hardware(manifest(), {"gpus": amd}).vendor == "amd"
    assert hostside.hardware(manifest(device="cpu"), {"gpus": []}).vendor == "cpu"


def test_what_a_start_finds() -> None:
    begun = {
        "engine_version": "0.5.9",
        "model": {"bytes": 547 * 10**9},
        "cached": 0.2,
        "ranks": {"TP0": {"load_seconds": 500.0}, "TP1": {"load_seconds": 547.0}},
    }
    facts = {
        "model": {"weights_bytes": 7, "cached": 0.4, "storage": {"kind": "nvme"}},
        "draft": {"weights_bytes": 3},
        "starts": [{**begun, "cached": 0.9}, begun],  # the first read little from the disk
        "kernels": {"files": 9, "engine_version": "0.5.9"},
    }
    found = hostside.beginning(manifest(), facts)
    assert (found.model_bytes, found.draft_bytes) == (7, 3)
    assert (found.cached, found.storage) == (0.4, "nvme")
    assert (found.loaded, found.kernels) == (800_000_000, True)


KERNELS = [
    (None, None),
    ({"files": 0, "engine_version": "0.5.9"}, None),  # that start needed none, or they are gone
    ({"files": 0, "engine_version": ""}, False),
    ({"files": 9, "engine_version": "0.5.8"}, False),
    ({"files": 9, "engine_version": "0.5.9"}, True),
]


@pytest.mark.parametrize(("told", "warm"), KERNELS)
def test_kernels_are_warm_only_for_the_version_that_ran(
    told: dict[str, Any] | None, warm: bool | None
) -> None:
    assert hostside.kernels(manifest(), {"kernels": told}) is warm
