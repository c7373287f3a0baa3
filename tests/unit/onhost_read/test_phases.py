"""Durations of a start by phase, from the times of its lines; and what a start leaves on record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from opsctl.onhost import phases, startrecord
from opsctl.onhost.journal import Reading
from opsctl.onhost.model import Record, StartFacts

GIB = 1 << 30

# Two ranks, the second slower in every phase; the order of 0.5.9. PIDs: 100 + rank.
OLD = """\
23:30:00 server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE3')
23:30:14 TP0 Init torch distributed begin.
23:30:15 TP1 Init torch distributed begin.
23:30:27 TP0 Init torch distributed ends. elapsed=13.02 s, mem usage=0.50 GB
23:30:28 TP1 Init torch distributed ends. elapsed=13.02 s, mem usage=0.50 GB
23:30:28 TP0 Load weight begin. avail mem=94.05 GB
23:30:28 TP1 Load weight begin. avail mem=94.05 GB
23:40:30 TP0 Load weight end. elapsed=602 s, type=X, avail mem=21.71 GB, mem usage=72.34 GB.
23:40:46 TP1 Load weight end. elapsed=618 s, type=X, avail mem=21.71 GB, mem usage=72.34 GB.
23:40:47 TP0 KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB
23:40:47 TP1 KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB
23:40:48 TP0 Memory pool end. avail mem=11.26 GB
23:40:48 TP1 Memory pool end. avail mem=11.26 GB
23:40:48 TP0 Capture cuda graph begin. This can take up to several minutes. avail mem=11.10 GB
23:41:09 TP0 Capture cuda graph end. Time elapsed: 21 s. mem usage=0.51 GB. avail mem=10.59 GB.
23:41:10 TP1 Capture cuda graph end. Time elapsed: 21 s. mem usage=0.51 GB. avail mem=10.59 GB.
23:41:10 TP0 Init torch distributed begin.
23:41:10 TP0 Init torch distributed ends. elapsed=0.01 s, mem usage=0.00 GB
23:41:10 TP0 Load weight begin. avail mem=10.50 GB
23:41:14 TP0 Load weight end. elapsed=3.10 s, type=Y, avail mem=9.40 GB, mem usage=1.10 GB.
23:41:15 TP0 KV Cache is allocated. #tokens: 159277, K size: 0.30 GB, V size: 0.30 GB
23:41:16 TP0 Memory pool end. avail mem=9.20 GB
23:41:16 TP0 Capture draft cuda graph begin. avail mem=8.80 GB
23:41:20 TP0 Capture draft cuda graph end. Time elapsed: 4 s. mem usage=0.1 GB. avail mem=8.7 GB.
23:41:21 TP0 Allocating 44.77 GB host memory for hierarchical KV cache.
23:41:22 TP1 Allocating 44.77 GB host memory for hierarchical KV cache.
23:41:47 Application startup complete.
23:41:51 The server is fired up and ready to roll!
"""

# 0.5.14 and later load the draft before the pools are sized; two kinds of graphs, no host tier.
NEW = """\
10:00:00 server_args={'speculative_algorithm': 'EAGLE3'}
10:00:20 Init parallel begin.
10:00:25 Init parallel ends. elapsed=5.0 s
10:00:25 Load weight begin. avail mem=75.00 GB
10:01:25 Load weight end. elapsed=60.0 s, type=X, avail mem=50.00 GB, mem usage=25.00 GB.
10:01:25 Init parallel begin.
10:01:25 Init parallel ends. elapsed=0.0 s
10:01:25 Load weight begin. avail mem=50.00 GB
10:01:27 Load weight end. elapsed=2.0 s, type=Y, avail mem=49.00 GB, mem usage=1.00 GB.
10:01:30 KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000, KV size: 1.00 GB
10:01:31 KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000, KV size: 0.10 GB
10:01:31 Memory pool end. avail mem=40.00 GB
10:01:32 Capture decode CUDA graph begin. avail mem=40 GB
10:01:52 Capture decode CUDA graph end. elapsed=20.0 s, mem usage=1.0 GB, avail mem=39.0 GB
10:02:02 Capture prefill CUDA graph end. elapsed=10.0 s, mem usage=1.0 GB, avail mem=38.0 GB
10:02:06 Application startup complete.
10:02:10 The server is fired up and ready to roll!
"""

TABLE: dict[str, tuple[str, dict[str, float]]] = {
    "0.5.9, eight ranks in two": (
        OLD,
        {
            "launch": 15, "dist": 13, "weights": 618, "kv": 2, "graphs": 24, "draft_weights": 4,
            "draft_kv": 2, "draft_graphs": 4, "host_pools": 25, "warmup": 4, "total": 711,
        },
    ),
    "0.5.23, draft first": (
        NEW,
        {
            "launch": 20, "dist": 5, "weights": 60, "draft_weights": 2, "kv": 3, "draft_kv": 1,
            "graphs": 31, "warmup": 8, "total": 130,
        },
    ),
}  # fmt: skip


def read(text: str) -> StartFacts:
    reading = Reading("inv")
    for line in text.splitlines():
        clock, _, rest = line.partition(" ")
        rank = rest.split(" ", 1)[0] if rest.startswith("TP") else ""
        rest = rest[len(rank) :].lstrip()
        when = datetime.strptime(f"2026-03-01 {clock}", "%Y-%m-%d %H:%M:%S")
        time = int(when.replace(tzinfo=UTC).timestamp() * 1e6)
        stamp = f"[2026-03-01 {clock}{' ' + rank if rank else ''}]"
        pid = 100 + int(rank[2:]) if rank else 99
        reading.feed(Record(time, f"{stamp} {rest}", pid, "python"))
    return reading.facts


@pytest.mark.parametrize("name", TABLE)
def test_phases_add_up_to_the_whole_start(name: str) -> None:
    text, wanted = TABLE[name]
    found = phases.seconds(read(text))
    assert found == {k: float(v) for k, v in wanted.items()}
    assert sum(v for k, v in found.items() if k != "total") == found["total"]


def test_a_start_that_is_not_ready_has_no_durations() -> None:
    assert phases.seconds(read(OLD.rsplit("\n", 2)[0])) == {}


def test_the_draft_leaves_its_own_free_memory() -> None:
    assert read(NEW).ranks["TP0"].draft["free_after"] == 49 * GIB


MANIFEST: dict[str, Any] = {
    "engine": {"version": "0.5.9"},
    "model": {"path": "/m", "draft_path": "/d"},
    "flags": {"tp-size": 2},
    "env": {"A": "1"},
    "gpus": [0, 1],
}
POOLS = 2 * 44_770_000_000


def begin(facts: StartFacts) -> dict[str, Any]:
    return {
        "time": facts.began / 1e6 - 1,
        "available": 440 * GIB,
        "cached": 0.25,
        "kernels": True,
        "model_bytes": 547_000_000_000,
    }


def test_a_record_holds_what_a_calibration_needs() -> None:
    facts = read(OLD)
    ready = {"available": 300 * GIB, "service": POOLS + 7 * GIB, "ranks": {"TP0": {"pid": 100}}}
    found = startrecord.record(facts, MANIFEST, begin(facts), ready)
    assert found["engine_version"] == "0.5.9"
    assert found["model"] == {"path": "/m", "draft_path": "/d", "bytes": 547_000_000_000}
    assert (found["flags"], found["env"], found["gpus"]) == ({"tp-size": 2}, {"A": "1"}, [0, 1])
    assert (found["cached"], found["kernels"]) == (0.25, True)
    assert found["seconds"]["weights"] == 618.0
    assert found["process"] == 7 * GIB // 2
    assert found["memory"]["begin"] == 440 * GIB and found["memory"]["ready"] == 300 * GIB
    assert found["ranks"]["TP1"]["pid"] == 101


def test_a_start_that_nobody_saw_begin_tells_nothing_of_the_next_ones_memory() -> None:
    """Taken over after weeks, or by a guard that was run again: another moment than just ready."""
    found = startrecord.record(read(OLD), MANIFEST, {}, {"service": POOLS + 9 * GIB})
    assert found["cached"] is None and found["memory"]["begin"] is None
    assert found["process"] is None


PROCESS = [
    # service's count, available at the beginning and when ready → per rank beside the pools
    (POOLS + 8 * GIB, 440, 300, 4 * GIB),
    (POOLS - GIB, 440, 440 - POOLS // GIB - 10, (10 * GIB + POOLS // GIB * GIB - POOLS) // 2),
    # a count that leaves less than an interpreter has missed something
    (POOLS + GIB // 4, 440, 440 - POOLS // GIB - 10, (10 * GIB + POOLS // GIB * GIB - POOLS) // 2),
    (0, None, 300, None),
    (0, 440, 430, None),  # less went than the pools took: somebody else gave memory back
]


@pytest.mark.parametrize(("service", "before", "after", "wanted"), PROCESS)
def test_the_memory_of_a_rank_beside_its_pools(
    service: int, before: int | None, after: int, wanted: int | None
) -> None:
    available = None if before is None else before * GIB
    ready = {"service": service, "available": after * GIB}
    assert startrecord.process(read(OLD), available, ready) == wanted
