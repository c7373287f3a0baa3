"""Forecast, logged, shown: the reference deployment, and why the three may differ."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.forecast.columns import ServiceMemory, columns
from opsctl.forecast.differences import explained

GIB = 1 << 30
REFERENCE = json.loads((Path(__file__).parents[1] / "views" / "collect-reference.json").read_text())


def answer(**memory: Any) -> dict[str, Any]:
    """The reference deployment as `collect --memory` tells of it: rank n is process 100 + n on GPU
    n, which has 86.93 GiB in use."""
    said: dict[str, Any] = copy.deepcopy(REFERENCE)
    said["memory"] |= memory
    service = said["services"][0]
    for n, rank in enumerate(service["start"]["ranks"].values()):
        rank |= {"pid": 100 + n, "draft": {"kv_bytes": int(0.6 * GIB)}}
        rank["draft"]["weights_bytes"] = int(1.1 * GIB)
    service["processes"] = [
        {"pid": 100 + n, "comm": "sglang", "rss": int(46.2 * GIB), "shared": 0} for n in range(8)
    ]
    used = int(86.93 * GIB)
    said["gpus"] = [
        {"index": n, "memory_used": used + (600 << 20), "memory_total": 96 * GIB, "state": "ok"}
        for n in range(8)
    ]
    said["gpu_processes"] = [
        {"gpu": n, "pid": 100 + n, "memory": used, "comm": "sglang"} for n in range(8)
    ]
    shmem = 8 * 44_770_923_648
    anon = 8 * 4 * GIB
    service["memory"] = {"bytes": anon + shmem, "anon": anon, "shmem": shmem, "basis": "cgroup"}
    return said


def told(said: dict[str, Any]) -> tuple[ServiceMemory, str]:
    one = columns(said, said["services"][0])
    return one, "\n".join(explained(one, said))


def test_the_reference_deployment_side_by_side() -> None:
    one, why = told(answer())
    assert [(rank.rank, rank.gpu, rank.pid) for rank in one.ranks] == [
        (f"TP{n}", n, 100 + n) for n in range(8)
    ]
    for rank in one.ranks:
        cells = {cell.name: cell for cell in rank.cells}
        assert (cells["KV tokens"].forecast, cells["KV tokens"].logged) == (159277, 159277)
        assert cells["KV cache"].forecast == 159277 * 70272
        pool = cells["host pool"]
        assert pool.forecast == 44_770_923_648 and pool.logged == 44_770_000_000
        weights = cells["weights"].logged
        assert weights is not None and round(weights / GIB, 2) == 72.34
        rest = 86.93 - 10.42 - 72.34 - 0.6 - 1.1
        assert cells["the rest"].shown == pytest.approx(rest * GIB, rel=0.001)
        process = cells["process"]
        assert process.forecast == 44_770_923_648 + int(4.5 * GIB)
        assert process.least is not None and process.shown == int(46.2 * GIB)
    host = {cell.name: cell for cell in one.host}
    assert host["host pools of all ranks"].logged == 8 * 44_770_000_000
    left = host["RAM left"]
    assert (round((left.forecast or 0) / GIB), round((left.shown or 0) / GIB)) == (79, 79)
    assert host["of it shared"].shown == 8 * 44_770_923_648
    assert not one.differs and not one.missing
    assert "44.77 GB are 41.70 GiB" in why
    assert "1.70 GiB of the draft model a GPU lie outside of mem-fraction-static: 0.5.9" in why
    assert "the rest of a GPU is 2.47 GiB: CUDA context" in why
    assert "KV cache, host pool differ from the forecast by no more than that" in why
    assert "page cache is given back" in why
    for absent in ("not as forecast", "resident memory", "RAM is left", "is not this service's"):
        assert absent not in why


def stranger(said: dict[str, Any]) -> None:
    said["gpu_processes"].append({"gpu": 3, "pid": 9, "memory": 2 * GIB, "comm": "python3"})


def elsewhere(said: dict[str, Any]) -> None:
    stranger(said)
    said["services"][0]["processes"].append({"pid": 9, "comm": "python3", "rss": 1})


def newer(said: dict[str, Any]) -> None:
    said["services"][0]["manifest"]["engine"]["version"] = "0.5.14"


def wrong(said: dict[str, Any]) -> None:
    said["services"][0]["checks"] = [
        {"id": "ranks", "status": "fail", "detail": "TP3 has 1 token", "evidence": []}
    ]


def open_point(said: dict[str, Any]) -> None:
    check = {"id": "ranks", "status": "inconclusive", "detail": "no expectation", "evidence": []}
    said["services"][0]["checks"] = [check]


def starting(said: dict[str, Any]) -> None:
    said["services"][0]["checks"] = []
    del said["services"][0]["start"]["ranks"]["TP7"]


def pinned(said: dict[str, Any]) -> None:
    pool = said["services"][0]["manifest"]["expect"]["host_pools"][0]
    pool["pinned"] = 64 * GIB


def hidden(said: dict[str, Any]) -> None:
    said["gpu_processes"] = []


def small(said: dict[str, Any]) -> None:
    for process in said["services"][0]["processes"]:
        process["rss"] = GIB


def grown(said: dict[str, Any]) -> None:
    said["services"][0]["processes"][3]["rss"] = 60 * GIB


def beyond(said: dict[str, Any]) -> None:
    said["gpus"][5]["memory_used"] += 3 * GIB


def given_back(said: dict[str, Any]) -> None:
    said["gpu_processes"][0]["memory"] = 80 * GIB


def neighbour(said: dict[str, Any]) -> None:
    said["memory"]["available"] = 40 * GIB
    memory = {"bytes": 30 * GIB, "anon": 0, "shmem": 30 * GIB, "basis": "cgroup"}
    said["services"].append({"service": "second", "memory": memory})


def more_left(said: dict[str, Any]) -> None:
    said["memory"]["available"] = 90 * GIB


def old(said: dict[str, Any]) -> None:
    said["services"][0]["manifest"]["expect"] = None


@pytest.mark.parametrize(
    ("change", "says", "silent"),
    [
        (stranger, "GPU 3: process 9 (python3) is not this service's and holds 2.00 GiB", ""),
        (elsewhere, "", "is not this service's"),
        (newer, "", "outside of mem-fraction-static"),
        (wrong, "not as forecast: TP3 has 1 token", ""),
        (open_point, "not judged: no expectation", ""),
        (starting, "nothing logged by TP7", ""),
        (starting, "the start is not over", ""),
        (pinned, "the log says 44.77 GB, and this version takes 68.72 GB for it", ""),
        (hidden, "no process on a GPU is known as TP0, TP1", "the rest of a GPU"),
        (small, "the resident memory of TP0 … TP7 (8 ranks) is less than its pools", ""),
        (grown, "the processes of TP3 hold more beside their pools than", "resident memory"),
        (beyond, "GPU 5: 3.59 GiB are used beyond what its processes show", "GPU 4:"),
        (given_back, "nvidia-smi shows up to 4.46 GiB less than was logged", ""),
        (neighbour, "less RAM is left than forecast", "second holds 0"),
        (neighbour, "second holds 30.00 GiB", ""),
        (more_left, "10.84 GiB more RAM is left than forecast", ""),
        (old, "this release carries no forecast", "RAM is left than forecast"),
    ],
)
def test_why_they_differ(change: Any, says: str, silent: str) -> None:
    said = answer()
    change(said)
    _, why = told(said)
    assert says in why
    assert not silent or silent not in why


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ({"hugetlb": 4 * GIB}, "4.00 GiB are reserved as huge pages"),
        ({"swap_used": GIB}, "1.00 GiB of swap are in use"),
    ],
)
def test_what_the_host_itself_holds(memory: dict[str, int], says: str) -> None:
    assert says in told(answer(**memory))[1]
    assert says not in told(answer())[1]


def test_whose_memory_is_kept_and_not_held_is_named() -> None:
    """A service that has failed, is enabled, and may be in no inventory any more."""
    failed = {
        "service": "old", "state": "failed", "enabled": "enabled", "standing": True,
        "expected": 100 * GIB, "ranks": 2, "process": 4 * GIB, "held": 0, "pinned": None,
    }  # fmt: skip
    said = {**answer(), "others": [failed, {**failed, "service": "kimi"}]}
    _, why = told(said)
    assert (
        "the forecast keeps 108.00 GiB of RAM for old, which does not hold them now: its unit is "
        "failed and starts at the next boot" in why
    )
    assert why.count("the forecast keeps") == 1, "not for the service itself"
    said["others"] = [{**failed, "enabled": "disabled"}]
    assert "the forecast keeps" not in told(said)[1]


def test_what_does_not_run_has_no_columns() -> None:
    said = answer()
    said["services"][0]["state"] = "inactive"
    one, why = told(said)
    assert one.ranks == () and one.check is None
    assert "it does not run (the unit is inactive)" in why


def test_pools_of_several_names_are_laid_beside_each_other() -> None:
    said = answer()
    service = said["services"][0]
    service["manifest"]["expect"]["host_pools"] = [
        {"name": "kv", "bytes": 10, "bytes_per_token": 1},
        {"name": "draft", "bytes": 5, "bytes_per_token": 1},
    ]
    for rank in service["start"]["ranks"].values():
        rank["host_pools"] = [{"name": "kv", "bytes": 10}, {"name": "kv", "bytes": 6}]
    one, _ = told(said)
    cells = {cell.name: cell for cell in one.ranks[0].cells}
    assert (cells["host pool"].forecast, cells["host pool"].logged) == (10, 10)
    assert (cells["host pool draft"].forecast, cells["host pool draft"].logged) == (5, 6)
