"""Waiting for a start: on its progress, with a clock that is made of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opsctl.onhost.model import FAIL, Check
from opsctl.onhost.startup import Look, await_ready, timing_of
from opsctl.onhost.systemd import UnitState

STATE = UnitState(active="active", sub="running", invocation="i1")
TIMING = {"stall": 60.0, "cap": 600.0}


class Clock:
    at = 0.0

    def now(self) -> float:
        return self.at

    monotonic = now

    def sleep(self, seconds: float) -> None:
        self.at += seconds


class Eyes:
    def __init__(self, clock: Clock, see: Callable[[float], Look]) -> None:
        self.clock, self.see = clock, see

    def look(self) -> Look:
        return self.see(self.clock.at)

    def before(self, manifest: Any) -> None: ...

    def begin(self, manifest: Any, before: str) -> None: ...

    def gate(self, name: str) -> None: ...

    def record(self) -> dict[str, Any]:
        return {}


def wait(see: Callable[[float], Look]) -> tuple[Check | None, float, list[dict[str, Any]]]:
    clock, told = Clock(), []
    check = await_ready(Eyes(clock, see), clock, TIMING, 2.0, told.append)
    return check, clock.at, told


def test_a_start_that_moves_may_take_longer_than_the_stall() -> None:
    check, seconds, told = wait(
        lambda at: Look(
            STATE,
            ready=at >= 300,
            samples={7: (int(at) << 20, 0, 0)},
            ranks={"TP0": "weights" if at < 200 else "graphs"},
        )
    )
    assert check is None and seconds == 300
    assert told[0]["ranks"] == {"TP0": "weights"} and told[-1]["ranks"] == {"TP0": "graphs"}
    assert {event["moved"] for event in told[1:]} == {"io"}


def test_a_start_that_stands_still_is_told_with_where_it_stands() -> None:
    check, seconds, told = wait(
        lambda at: Look(STATE, ranks={"TP0": "weights", "TP1": "dist"}, log=["last words"])
    )
    assert check is not None and (check.status, check.id) == (FAIL, "start")
    assert 60 <= seconds <= 64
    assert "TP0 at weights, TP1 at dist" in check.detail and check.evidence == ["last words"]
    assert [event["idle"] for event in told][-1] >= 50


def test_the_cap_ends_a_start_that_moves_for_ever() -> None:
    check, seconds, _ = wait(lambda at: Look(STATE, samples={7: (int(at) << 20, 0, 0)}))
    assert check is not None and "cap" in check.detail and 600 <= seconds <= 604


def test_a_crash_is_told_at_the_next_look() -> None:
    crash = Check("unit", FAIL, "the engine ended", ["boom"])
    check, seconds, _ = wait(lambda at: Look(STATE, crashed=crash if at >= 10 else None))
    assert check is crash and seconds == 10


CAPS = [
    ({"cap": 5400.0, "cap_of": "forecast"}, {"start": {"cap": 2400}}, 2400.0),
    ({"cap": 5400.0, "cap_of": "forecast"}, {"start": None}, 5400.0),
    ({"cap": 5400.0, "cap_of": "forecast"}, None, 5400.0),
    ({"cap": 900.0, "cap_of": "description"}, {"start": {"cap": 2400}}, 900.0),
    ({"cap": 900.0}, {"start": {"cap": 2400}}, 900.0),  # a release of before
]


@pytest.mark.parametrize(("timing", "expect", "cap"), CAPS)
def test_the_cap_is_the_owners_else_the_forecasts(
    timing: dict[str, Any], expect: dict[str, Any] | None, cap: float
) -> None:
    found = timing_of({"timing": {"drain": 5.0, "stall": 9.0, **timing}, "expect": expect})
    assert found == {"drain": 5.0, "stall": 9.0, "cap": cap}
    assert timing_of({})["cap"] == 5400.0
