from __future__ import annotations

import threading
import time

import pytest

from opsctl.errors import OpsctlError, Unreachable
from opsctl.remote.fanout import each


def test_results_in_order_and_one_failure_stops_no_other() -> None:
    def work(name: str) -> str:
        time.sleep(0.02 if name == "a" else 0)
        if name == "b":
            raise OpsctlError("no", host="b")
        return name.upper()

    seen: list[str] = []
    found = each(["a", "b", "c"], work, timeout=5, done=lambda o: seen.append(o.name))
    assert [(o.name, o.value, o.ok) for o in found] == [
        ("a", "A", True),
        ("b", None, False),
        ("c", "C", True),
    ]
    assert sorted(seen) == ["a", "b", "c"]


def test_never_more_at_once_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(name: str) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    each([str(i) for i in range(20)], work, timeout=10, workers=4)
    assert most == 4


def test_the_total_time_is_bounded() -> None:
    release = threading.Event()

    def work(name: str) -> str:
        if name == "hangs":
            release.wait(30)
        return name

    began = time.monotonic()
    found = each(["hangs", "b"], work, timeout=0.3)
    release.set()
    assert time.monotonic() - began < 2
    assert isinstance(found[0].error, Unreachable)
    assert found[0].error.host == "hangs"
    assert found[1].value == "b"


def test_a_fault_of_ours_is_not_hidden() -> None:
    def work(name: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each(["a"], work, timeout=5)


def test_interrupt_ends_it_and_starts_nothing_more() -> None:
    started: list[str] = []

    def work(name: str) -> str:
        started.append(name)
        time.sleep(0.05)
        return name

    def interrupt(outcome: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each([str(i) for i in range(50)], work, timeout=5, workers=1, done=interrupt)
    time.sleep(0.2)
    assert len(started) <= 3


def test_no_hosts() -> None:
    assert each([], lambda name: name, timeout=1) == []
