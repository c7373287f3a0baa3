"""NUMA nodes, huge pages, limits of control groups, compiled kernels, other services."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost import cgroups, kernelcache, neighbours, numa
from opsctl.onhost.model import RankFacts, StartFacts
from opsctl.onhost.store import Places
from opsctl.onhost.systemd import UnitState

KIB = 1024
NODE = """\
Node {n} MemTotal:       1000 kB
Node {n} MemFree:         100 kB
Node {n} Active(file):    200 kB
Node {n} Inactive(file):  300 kB
Node {n} FilePages:       900 kB
Node {n} Shmem:           400 kB
Node {n} SReclaimable:     10 kB
"""


def put(root: Path, files: dict[str, Any]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return str(root)


def test_nodes_without_their_shared_memory(tmp_path: Path) -> None:
    """Page cache that is shared memory (host pools of 0.5.13 and later) cannot be given back."""
    names = {n: f"devices/system/node/node{n}/meminfo" for n in (0, 1, 10)}
    files = {name: NODE.format(n=n) for n, name in names.items()}
    files[names[1]] = "Node 1 MemTotal:       0 kB"  # processors only
    found = numa.nodes(put(tmp_path, files))
    assert [node["node"] for node in found] == [0, 10]
    assert found[0] == {
        "node": 0, "total": 1000 * KIB, "free": 100 * KIB, "available": 610 * KIB,
    }  # fmt: skip
    assert numa.nodes(str(tmp_path / "none")) == []


def test_huge_pages(tmp_path: Path) -> None:
    folder = "kernel/mm/hugepages/hugepages-{}kB/{}"
    root = put(
        tmp_path,
        {
            folder.format(1048576, "nr_hugepages"): 400,
            folder.format(1048576, "free_hugepages"): 60,
            folder.format(2048, "nr_hugepages"): 0,
            folder.format(2048, "free_hugepages"): 0,
        },
    )
    assert numa.hugepages(root) == [
        {"size": 1 << 30, "total": 400, "free": 60},
        {"size": 2 << 20, "total": 0, "free": 0},
    ]
    assert numa.hugepages(str(tmp_path / "none")) == []


STAT = "anon 500\nfile 400\nactive_file 100\ninactive_file 50\nshmem 250"


def test_limits_of_version_2_down_the_chain(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "cgroup.controllers": "memory",
            "system.slice/memory.max": "max",
            "system.slice/memory.high": 2000,
            "system.slice/memory.current": 900,
            "system.slice/memory.stat": STAT,
            "system.slice/x.service/memory.max": 1000,
            "system.slice/x.service/memory.high": "max",
            "system.slice/x.service/memory.current": 700,
            "system.slice/x.service/memory.stat": STAT,
        },
    )
    assert cgroups.chain("/system.slice/x.service", root, "/none") == [
        {"path": "/system.slice", "limit": 2000, "used": 750},
        {"path": "/system.slice/x.service", "limit": 1000, "used": 550},
    ]


def test_limits_of_version_1(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "memory.limit_in_bytes": 9223372036854771712,
            "system.slice/memory.limit_in_bytes": 5000,
            "system.slice/memory.usage_in_bytes": 900,
            "system.slice/memory.stat": "total_active_file 100\ntotal_inactive_file 50",
        },
    )
    assert cgroups.chain("/system.slice/x.service", "/none", root) == [
        {"path": "/system.slice", "limit": 5000, "used": 750},
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("system.slice", "/system.slice"),
        ("-.slice", "/"),
        ("", "/"),
        ("ai-serving-big.slice", "/ai.slice/ai-serving.slice/ai-serving-big.slice"),
    ],
)
def test_a_slice_lies_in_those_that_it_is_named_after(name: str, path: str) -> None:
    assert cgroups.slice_path(name) == path


def test_a_unit_that_does_not_run_has_its_settings_limit() -> None:
    settings = {
        "ControlGroup": "",
        "Slice": "x.slice",
        "MemoryMax": "5000",
        "MemoryHigh": "infinity",
    }
    assert cgroups.of(settings, "s.service")[-1] == {
        "path": "/x.slice/s.service", "limit": 5000, "used": 0,
    }  # fmt: skip
    # systemd's own "infinity" as a number
    assert cgroups.of({"MemoryMax": "18446744073709551615"}, "s.service") == cgroups.of({}, "s")


def test_compiled_kernels(tmp_path: Path) -> None:
    put(tmp_path, {"compiled/triton/a/k.cubin": "12345", ".cache/tvm/k.so": "1", "other/x": "no"})
    os.utime(tmp_path / ".cache/tvm/k.so", (5, 5))
    os.utime(tmp_path / "compiled/triton/a/k.cubin", (9, 9))
    found = kernelcache.of(
        str(tmp_path), [{"engine_version": "0.5.9"}, {"engine_version": "0.5.8"}]
    )
    assert (found["bytes"], found["files"], found["newest"]) == (8, 2, 9.0)
    assert found["parts"]["compiled/triton"] == 6 and found["whole"]
    assert found["engine_version"] == "0.5.9"
    cold = kernelcache.of(str(tmp_path / "none"), [])
    assert (cold["files"], cold["bytes"], cold["engine_version"]) == (0, 0, "")


def test_too_many_kernels_are_not_counted_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {f".cache/{n}": "x" for n in range(5)})
    monkeypatch.setattr(kernelcache, "MOST_FILES", 3)
    found = kernelcache.of(str(tmp_path), [])
    assert (found["files"], found["whole"]) == (3, False)


# -- other services --------------------------------------------------------------------------------

DIGEST = "a" * 64


def service(root: Path, *, in_place: bool = True, expect: Any = None) -> UnitState:
    unit = f"[Unit]\nX-OpsctlRelease={DIGEST}\n"
    release = f"etc/opsctl/glm/releases/{DIGEST}"
    put(root, {f"{release}/sglang-glm.service": unit.rstrip("\n")})
    manifest = {"ranks": ["TP0", "TP1"], "expect": expect}
    put(root, {f"{release}/release.json": json.dumps(manifest)})
    if in_place:
        put(root, {"etc/systemd/system/sglang-glm.service": unit.rstrip("\n")})
    return UnitState(
        name="sglang-glm.service", active="active", properties={"UnitFileState": "enabled"}
    )


def test_what_another_service_was_forecast_to_take(tmp_path: Path) -> None:
    state = service(tmp_path, expect={"host_total": 1000})
    assert neighbours.of(Places(tmp_path), state, 300) == {
        "service": "glm", "state": "active", "enabled": "enabled", "standing": True,
        "expected": 1000, "ranks": 2, "process": None, "held": 300, "pinned": None,
    }  # fmt: skip


def test_pools_that_a_ready_start_has_logged_are_not_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = replace(service(tmp_path, expect={"host_total": 1000}), invocation="a" * 32)
    pool = {"name": "kv", "bytes": 500}
    pools = {f"TP{n}": {"rank": f"TP{n}", "host_pools": [pool]} for n in (0, 1)}
    for name, ready in (("a" * 32, True), ("b" * 32, True)):
        start = json.dumps({"invocation": name, "ready": ready, "ranks": pools})
        put(tmp_path, {f"var/lib/opsctl/glm/starts/{name}.json": start})
    found = neighbours.of(Places(tmp_path), state, 300)
    assert found is not None and found["pinned"] == 1000
    other = replace(state, invocation="c" * 32)  # a hand's start, of which there is no record
    loading = StartFacts(ranks={"TP0": RankFacts("TP0", host_pools=[{**pool, "bytes": 70}])})
    monkeypatch.setattr(neighbours.starts, "facts", lambda store, state: loading)
    found = neighbours.of(Places(tmp_path), other, 300)
    assert found is not None and found["pinned"] is None
    loading.ready = True
    found = neighbours.of(Places(tmp_path), other, 300)
    assert found is not None and found["pinned"] == 70


def test_its_processes_are_those_that_were_measured(tmp_path: Path) -> None:
    state = service(tmp_path)
    measured = {"a": (None, 7), "b": ("other", 9), "c": (None, None)}  # gpu_key, process
    for n, (name, (key, process)) in enumerate(measured.items()):
        start = json.dumps({"invocation": name * 32, "gpu_key": key, "process": process})
        put(tmp_path, {f"var/lib/opsctl/glm/starts/{name * 32}.json": start})
        os.utime(tmp_path / f"var/lib/opsctl/glm/starts/{name * 32}.json", (n, n))
    found = neighbours.of(Places(tmp_path), replace(state, active="inactive"), 0)
    assert found is not None and found["process"] == 7


def test_a_service_that_is_only_staged_is_told(tmp_path: Path) -> None:
    found = neighbours.of(Places(tmp_path), service(tmp_path, in_place=False), 0)
    assert found is not None and not found["standing"] and found["expected"] is None


def test_units_of_other_hands_are_left_out(tmp_path: Path) -> None:
    state = service(tmp_path)
    put(tmp_path, {"etc/systemd/system/sglang-glm.service": "[Service]\nExecStart=/bin/true"})
    assert neighbours.of(Places(tmp_path), state, 0) is None
    strange = UnitState(name="sglang-a@b.service")
    assert neighbours.of(Places(tmp_path), strange, 0) is None
