"""Stalled or slow: real work of every kind goes on, noise does not help."""

from collections.abc import Callable

import pytest

from opsctl.onhost.model import Event
from opsctl.onhost.progress import Progress, Sample

MIB = 1 << 20
STALL, CAP = 900.0, 5400.0


def event(kind: str = "weights_begin", rank: str = "TP0", **data: object) -> Event:
    return Event(kind, 1, rank, dict(data), "")


def watch() -> Progress:
    return Progress(0.0, stall=STALL, cap=CAP)


def run(sample: Callable[[int], Sample], step: float = 2.0) -> tuple[float, str]:
    """A start whose one process shows `sample(n)` at look n, until the verdict falls."""
    progress, number = watch(), 0
    while not progress.verdict(number * step):
        progress.observe(number * step, [], {1: sample(number)})
        number += 1
    return number * step, progress.verdict(number * step)


def test_nothing_at_all_is_a_stall() -> None:
    at, reason = run(lambda n: (0, 500 * MIB, 100))
    assert STALL <= at <= STALL + 4
    assert reason == "no progress for 15 min"


def test_a_hung_process_that_only_wakes_its_threads_is_a_stall() -> None:
    """Ticks at 2 % of a core, memory up and down by a page, a log file read now and then."""
    at, _ = run(lambda n: (4096 * (n % 5), 500 * MIB + 4096 * (n % 3), 4 * n))
    assert STALL <= at <= STALL + 4


def test_a_rank_that_spins_for_lost_peers_is_caught_before_the_cap() -> None:
    at, reason = run(lambda n: (0, 500 * MIB, 800 * n))
    assert 3 * STALL <= at <= 3 * STALL + 4
    assert "spins" in reason


def test_a_capture_of_1334_seconds_that_shows_only_cpu_time_goes_on() -> None:
    progress = watch()
    progress.observe(0.0, [event("graph_begin")], {1: (0, 500 * MIB, 0)})
    for second in range(2, 1334, 2):
        progress.observe(float(second), [], {1: (0, 500 * MIB, 100 * second)})
        assert progress.verdict(float(second)) == ""
    assert progress.observe(1334.0, [event("graph_end")], {1: (0, 500 * MIB, 133400)}) == "journal"
    assert progress.idle(1334.0) == 0


@pytest.mark.parametrize(
    "sample, moved",
    [
        (lambda n: (5 * MIB * n, 500 * MIB, 100), "io"),
        (lambda n: (0, 20 * MIB * n, 100), "rss"),
        (lambda n: (0, 500 * MIB + 32 * MIB * (n % 2), 100), "rss"),  # shards come and go
        (lambda n: (0, 500 * MIB, 100 * n), "cpu"),
    ],
)
def test_every_sign_of_work(sample: Callable[[int], Sample], moved: str) -> None:
    progress = watch()
    progress.observe(0.0, [], {1: sample(0)})
    assert progress.observe(2.0, [], {1: sample(1)}) == moved
    assert progress.idle(3.0) == 1.0


def test_slow_work_adds_up() -> None:
    """100 KiB a look: below every step, yet it counts once it has gathered."""
    progress = watch()
    progress.observe(0.0, [], {1: (0, 0, 0)})
    moved = [progress.observe(2.0 * n, [], {1: (n * 102400, 0, 0)}) for n in range(1, 100)]
    assert moved.count("io") == 2
    assert set(moved) == {"", "io"}


def test_work_that_begins_after_a_long_wait_counts_at_once() -> None:
    progress = watch()
    for second in range(0, 800, 2):
        assert progress.observe(float(second), [], {1: (0, 500 * MIB, 100)}) == ""
    assert progress.observe(800.0, [], {1: (0, 500 * MIB, 300)}) == "cpu"
    assert progress.idle(800.0) == 0


def test_gpu_memory() -> None:
    progress = watch()
    progress.observe(0.0, gpu_used=1000 * MIB)
    assert progress.observe(2.0, gpu_used=1001 * MIB) == ""
    assert progress.observe(4.0, gpu_used=1002 * MIB) == "gpu"


def test_an_event_counts_once() -> None:
    """A bar that stands, a health poll, an error that repeats: no progress."""
    progress = watch()
    assert progress.observe(1.0, [event("weights_bar", done=3, of=9)]) == "journal"
    assert progress.observe(2.0, [event("weights_bar", done=3, of=9)]) == ""
    assert progress.observe(3.0, [event("weights_bar", done=4, of=9)]) == "journal"
    assert progress.observe(4.0, [event("error", cause="nccl", weight=1)]) == ""


def test_the_same_event_of_another_rank_counts() -> None:
    progress = watch()
    assert progress.observe(1.0, [event(rank="TP0")]) == "journal"
    assert progress.observe(2.0, [event(rank="TP1")]) == "journal"


def test_the_first_look_only_sets_the_marks() -> None:
    progress = watch()
    assert progress.observe(5.0, [], {1: (10**9, 10**9, 10**6)}, 10**10) == ""
    assert progress.idle(5.0) == 5.0


def test_a_process_that_comes_counts_and_one_that_goes_does_not() -> None:
    progress = watch()
    progress.observe(0.0, [], {1: (9 * MIB, 100 * MIB, 100)})
    assert progress.observe(2.0, [], {1: (9 * MIB, 100 * MIB, 100), 2: (0, 64 * MIB, 0)}) == "rss"
    assert progress.observe(4.0, [], {2: (0, 64 * MIB, 0)}) == ""


def test_the_cap_stops_even_a_start_that_moves() -> None:
    progress = watch()
    for minute in range(90):
        progress.observe(60.0 * minute, [event(done=minute)])
        assert progress.verdict(60.0 * minute) == ""
    progress.observe(CAP, [event(done=99)])
    assert "cap" in progress.verdict(CAP)


def test_time_left() -> None:
    progress = watch()
    progress.observe(10.0, [event()])
    assert progress.left(10.0) == STALL
    assert progress.left(CAP - 1) < 0
    progress.observe(CAP - 10, [event(done=1)])
    assert progress.left(CAP - 10) == 10.0
