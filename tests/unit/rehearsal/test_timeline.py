"""What each rank logs in the reference and in the faults, read back by the gates' own reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opsctl.onhost.journal import events, facts
from opsctl.onhost.model import Record, StartFacts
from opsctl.rehearsal import cmdline
from opsctl.rehearsal.ranks import ranks
from opsctl.rehearsal.scenario import packaged, read
from opsctl.rehearsal.timeline import Start, Step, steps

FLAGS = [
    *(
        "--model-path=/m",
        "--tp-size=8",
        "--mem-fraction-static=0.88",
        "--enable-hierarchical-cache",
    ),
    *("--speculative-algorithm=EAGLE3", "--speculative-eagle-topk=1"),
    "--speculative-draft-model-path=/d",
]


def start_of(name: str, *more: str) -> Start:
    scenario = read(packaged()[name])
    own = FLAGS if scenario.engine == "0.5.9" else ["--model-path", "/m"]
    flags = cmdline.parse(scenario.engine, [*own, *more])
    return Start(scenario, flags, scenario.active_fault(flags))


def told(start: Start) -> Iterator[Record]:
    for rank in ranks(start.flags):
        for step in steps(start, rank):
            prefix = "" if step.raw else f"[2026-03-01 23:45:08{rank.prefix}] "
            for line in step.line.splitlines():
                yield Record(1, prefix + line, 100 + rank.number)


def read_back(name: str, *more: str) -> StartFacts:
    return facts(events(told(start_of(name, *more))))


@pytest.mark.parametrize(("ratio", "pool"), [("4.0", 44_770_000_000), ("2.0", 22_390_000_000)])
def test_the_reference_logs_its_measured_figures_on_all_ranks(ratio: str, pool: int) -> None:
    found = read_back("reference", f"--hicache-ratio={ratio}").ranks
    assert sorted(found) == [f"TP{n}" for n in range(8)]
    for rank in found.values():
        assert rank.kv_tokens == 159277
        assert rank.kv_bytes == int(10.42 * 2**30)
        assert rank.free_after_weights == int(21.71 * 2**30)
        assert [p["bytes"] for p in rank.host_pools] == [pool]


def test_without_the_host_tier_no_pool_is_logged() -> None:
    start = start_of("reference")
    flags = {**start.flags, "enable-hierarchical-cache": False}
    lines = [s.line for s in steps(Start(start.scenario, flags, None), ranks(flags)[3])]
    assert not [line for line in lines if "host memory" in line]


def test_the_newer_version_has_its_own_words() -> None:
    found = read_back("small-0.5.23").ranks
    assert list(found) == ["TP0"]
    assert found["TP0"].kv_tokens == 4096
    lines = [s.line for s in steps(start_of("small-0.5.23"), ranks({"tp-size": 1})[0])]
    assert "Init parallel begin." in lines
    assert "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, KV size: 0.00 GB" in lines


def test_a_silent_rank_logs_nothing_and_still_gets_ready() -> None:
    assert sorted(read_back("silent-rank", "--hicache-ratio=4").ranks) == [
        f"TP{n}" for n in range(8) if n != 5
    ]
    assert ends("silent-rank", 5) == ["ready"]


def test_an_odd_rank_logs_other_figures() -> None:
    found = read_back("odd-rank", "--hicache-ratio=4").ranks
    assert {r: f.kv_tokens for r, f in found.items() if f.kv_tokens != 159277} == {"TP6": 151200}
    assert found["TP6"].host_pools[0]["bytes"] == 42_500_000_000


@pytest.mark.parametrize(
    ("name", "rank", "end"),
    [
        ("reference", 0, ["ready"]),
        ("host-memory-refused", 2, ["crash"]),
        ("crash-at-graphs", 7, ["crash"]),
        ("crash-at-graphs", 1, ["hang"]),
        ("hang-in-loading", 4, ["hang"]),
        ("too-little-ram-after-start", 3, ["ready"]),
    ],
)
def test_how_a_rank_ends(name: str, rank: int, end: list[str]) -> None:
    assert ends(name, rank) == end


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("host-memory-refused", "Requesting 44.77 GB but only have 39.03 GB free"),
        ("crash-at-graphs", "CUDA out of memory. Tried to allocate 448.00 MiB"),
    ],
)
def test_the_reader_finds_the_cause_of_a_crash(name: str, words: str) -> None:
    assert any(words in line for line in read_back(name, "--hicache-ratio=4").errors)


def test_memory_at_the_end_is_the_reference_hosts() -> None:
    start = start_of("reference", "--hicache-ratio=4")
    held = [last_host(steps(start, rank)) for rank in ranks(start.flags)]
    machine = start.scenario.machine
    assert machine["mem_available_kb"] - sum(held) == 82418073  # 78 GiB, as `free -h` said


def test_the_fastest_rank_waits_for_the_slowest() -> None:
    start = start_of("reference")
    weights = [sum(s.seconds for s in steps(start, rank)) for rank in ranks(start.flags)]
    assert max(weights) - min(weights) < 0.001


def ends(name: str, rank: int) -> list[str]:
    start = start_of(name, "--hicache-ratio=4")
    return [s.ends for s in steps(start, ranks(start.flags)[rank]) if s.ends]


def last_host(played: list[Step]) -> int:
    return [s.host_kb for s in played if s.host_kb is not None][-1]
