"""A roll of drivers takes no host down that serves while another does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from opsctl.errors import OpsctlError, Unreachable
from opsctl.rollout import serving
from opsctl.rollout.driver import Step, step
from opsctl.rollout.driverend import BOOTS, LOOKS, STARTS, STOPS, Ended, Place, interrupted
from opsctl.rollout.driverhost import roll
from opsctl.rollout.steps import Order
from tests.unit.rollout.test_driver_roll_plan import (
    FOUND,
    SETTLED,
    WISH,
    Box,
    Programs,
    refused,
    seen,
    state,
)
from tests.unit.rollout.test_fleet import Time

SERVES = {"state": "active", "health": "ok"}
PARKED = {"state": "inactive", "parked": {"run": "r"}, "health": "unknown"}


def planned(host: str, found: Any = FOUND, **now: Any) -> Step:
    told = seen(found, **now)
    down = serving.down(["kimi"], told.collected)
    return replace(step(host, WISH, told), described=("kimi",), down=down)


@pytest.mark.parametrize(
    ("now", "how"),
    [
        (SERVES, None),
        ({"state": "active", "health": "unknown"}, None),  # a unit of other hands
        ({**SERVES, "parked": {"run": "r"}}, None),
        ({"state": "inactive"}, "does not serve (inactive)"),
        (PARKED, "does not serve (inactive, parked)"),
        (
            {"state": "activating", "sub": "auto-restart"},
            "does not serve (activating (auto-restart))",
        ),
        ({"state": "active", "health": "starting"}, "does not serve: it is still starting"),
        ({"state": "active", "health": "unreachable"}, "does not serve: it does not answer"),
        ({"state": "active", "health": "unhealthy"}, "does not serve: it is not healthy"),
    ],
)
def test_what_serves(now: dict[str, Any], how: str | None) -> None:
    found = serving.down(["kimi"], {"services": [state(**now)]})
    assert found == ({} if how is None else {"kimi": how})


def test_what_is_not_there_or_does_not_answer_does_not_serve() -> None:
    assert serving.down(["kimi"], {"services": []}) == {"kimi": "does not serve (absent)"}
    silent = serving.down(["kimi"], Unreachable("no route"))
    assert silent == {"kimi": "is not known to serve: no route"}
    assert serving.down([], Unreachable("no route")) == {}


HALF = {**FOUND, "changed": False, "reboot": ["the kernel runs 580.65.06"]}


@pytest.mark.parametrize(
    "late",
    [
        planned("h3", SETTLED, **PARKED),
        planned("h3", **PARKED),
        planned("h3", state="activating", sub="auto-restart"),
        planned("h3", HALF, **SERVES),
    ],
    ids=["parked", "parked-and-old", "crashing", "packages-without-reboot"],
)
def test_what_is_down_or_half_done_comes_first(late: Step) -> None:
    plan = [planned("h1", **SERVES), planned("h2", **SERVES), late]
    assert [one.host for one in serving.ordered(plan)] == ["h3", "h1", "h2"]
    serving.refuse(plan)  # the roll itself starts it


@pytest.mark.parametrize("found", [SETTLED, FOUND])
def test_a_roll_that_would_stop_half_way_is_not_begun(found: Any) -> None:
    plan = [planned("h1", **SERVES), planned("h2", found, state="failed")]
    with pytest.raises(OpsctlError) as caught:
        serving.refuse(plan)
    assert caught.value.message == (
        "nothing was touched: kimi on h2 does not serve (failed), which this roll would not "
        "change, and h1 would be taken down meanwhile"
    )
    assert caught.value.hint.startswith("opsctl start kimi --limit h2; or, if it may stay down:")
    serving.refuse(plan, ["h2"])
    serving.refuse(plan[1:])  # nobody is taken down for it


def rolled(plan: list[Step], boxes: list[Box], allowed: Any = (), **answers: Any) -> list[Ended]:
    order = Order("r", "me", "CVE", "now", lambda *_: None, clock=Time().clock())
    programs = {box.name: Programs(box, **answers if n == 0 else {}) for n, box in enumerate(boxes)}
    hosts = {box.name: box for box in boxes}
    return roll(hosts, plan, order, programs.__getitem__, allowed)  # type: ignore[arg-type]


def now(box: Box, *then: dict[str, Any]) -> Callable[[Any], Any]:
    """What `collect` of a host says, time after time; the last for ever."""
    left = list(then)

    def collect(_: Any) -> Any:
        told = left.pop(0) if len(left) > 1 else left[0]
        done = {"run": {"run": "r", "active": False}, "lock": {"state": "over"}}
        return {"services": [state(**told) | done]}

    box.verbs["collect"] = collect
    return collect


def test_the_one_that_is_down_is_brought_to_serve_before_the_next_is_touched() -> None:
    boxes = [Box("h2"), Box("h1")]
    now(boxes[0], SERVES)
    now(boxes[1], SERVES)
    plan = [planned("h2", SETTLED, **PARKED), planned("h1", **SERVES)]
    same = {"install": [{**SETTLED, "driver": "580.95.05"}]}
    assert [one.outcome for one in rolled(plan, boxes, **same)] == ["upgraded", "upgraded"]


def test_if_it_does_not_come_to_serve_the_one_that_serves_is_not_touched() -> None:
    boxes = [Box("h2"), Box("h1")]
    plan = [planned("h2", SETTLED, **PARKED), planned("h1", **SERVES)]
    first, second = rolled(plan, boxes, install=[refused("its module does not load")] * 2)
    assert (first.host, second.outcome) == ("h2", "skipped") and not first.good
    assert boxes[1].asked == []


def test_before_each_step_the_others_are_asked_anew() -> None:
    """h1 is done, and then its engine dies: h2 is not taken down."""
    boxes = [Box("h1"), Box("h2")]
    now(boxes[0], SERVES, {"state": "failed"})
    now(boxes[1], SERVES)
    plan = [planned("h1", **SERVES), planned("h2", **SERVES)]
    first, second = rolled(plan, boxes)
    assert (first.outcome, second.outcome) == ("upgraded", "refused")
    assert second.cause == "was not taken down, since kimi on h1 does not serve (failed)"
    assert second.state == "nothing was touched: its services serve as before"
    assert "opsctl start kimi --limit h1" in second.hint and "opsctl_allow_down=h1" in second.hint
    assert boxes[1].asked == []


def test_one_answer_that_is_missed_under_load_stops_nothing() -> None:
    boxes = [Box("h1"), Box("h2")]
    now(boxes[1], {"state": "active", "health": "unhealthy"}, SERVES)
    now(boxes[0], SERVES)
    plan = [planned("h1", **SERVES), planned("h2", **SERVES)]
    assert [one.outcome for one in rolled(plan, boxes)] == ["upgraded", "upgraded"]


def test_the_operator_may_allow_it() -> None:
    boxes = [Box("h1"), Box("h2")]
    now(boxes[1], {"state": "failed"})
    plan = [planned("h1", **SERVES), planned("h2", SETTLED, state="failed")]
    assert rolled(plan, boxes)[0].outcome == "refused"
    assert [one.outcome for one in rolled(plan, boxes, ["h2"])] == ["upgraded", "unchanged"]


@pytest.mark.parametrize(
    ("phase", "state", "hint"),
    [
        (LOOKS, "serve as before; locks may be left", "opsctl unlock kimi --limit h1; then again:"),
        (STOPS, "kimi is parked, and stopped or about to be; a drain or packages that were begun",
         "opsctl status --limit h1; opsctl unlock kimi --limit h1; then again:"),
        (BOOTS, "it boots anew; kimi starts then if doctor", "opsctl watch kimi; then again:"),
        (STARTS, "a guard on the host starts kimi behind its", "opsctl watch kimi; then again:"),
    ],
)  # fmt: skip
def test_who_interrupts_a_roll_is_told_what_is_so_now(phase: str, state: str, hint: str) -> None:
    ended = interrupted(Place(planned("h1", **SERVES), phase))
    assert ended is not None and (ended.host, ended.cause) == ("h1", "interrupted")
    assert state in ended.state and ended.hint.startswith(hint)


def test_the_place_of_a_roll_is_known_at_each_of_its_effects() -> None:
    box, place, seen_at = Box("h1"), Place(), list[tuple[str, str]]()
    programs = Programs(box)

    def program(what: str) -> Any:
        seen_at.append((what, place.phase))
        return programs(what)

    def stopped(_: Any) -> Any:
        seen_at.append(("stop", place.phase))
        return {}

    box.verbs["stop"] = stopped
    order = Order("r", "me", "CVE", "now", lambda *_: None, clock=Time().clock())
    roll({"h1": box}, [planned("h1", **SERVES)], order, lambda _: program, (), place)
    assert seen_at == [
        ("fetch", LOOKS), ("stop", STOPS), ("install", STOPS), ("install", BOOTS)
    ]  # fmt: skip
    assert place.step is None and interrupted(place) is None
