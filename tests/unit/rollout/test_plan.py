"""What would be done, from what hosts say: a table."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.errors import LockHeld, NothingSelected, OpsctlError, Unreachable
from opsctl.rollout.model import Takeover, Wanted
from opsctl.rollout.order import ordered
from opsctl.rollout.plan import decide, make

OLD, NEW = "a" * 64, "b" * 64


def manifest(digest: str, **flags: Any) -> dict[str, Any]:
    return {
        "digest": digest,
        "engine": {"version": "0.5.9", "root": "/opt/sglang/0.5.9"},
        "model": {"path": "/srv/m", "served_name": "m", "draft_path": None},
        "address": {"host": "127.0.0.1", "port": 30000},
        "flags": flags,
        "env": {},
        "secrets": {},
        "gpus": None,
        "user": "sglang",
        "gates": {"soak": 30.0},
        "memory": {"min_available": 1, "swap": "forbid"},
        "timing": {"drain": 60.0, "stall": 900.0, "cap": 5400.0},
        "expect": None,
    }


def state(
    name: str = "kimi",
    running: str | None = OLD,
    confirmed: str | None = OLD,
    previous: str | None = None,
    active: str = "active",
    **more: Any,
) -> dict[str, Any]:
    release = {"running": running, "confirmed": confirmed, "previous": previous, "pending": None}
    return {"service": name, "state": active, "release": release, **more}


RATIO_2, RATIO_4 = manifest(OLD, **{"hicache-ratio": 2.0}), manifest(NEW, **{"hicache-ratio": 4.0})
SOAK = manifest(OLD, **{"hicache-ratio": 2.0}) | {"gates": {"soak": 60.0}}
HAND_MADE = state(running="0", confirmed=None, invocation="i1")
LOOPS = state(active="activating", sub="auto-restart")  # it dies, and systemd starts it again
ABSENT = state(running=None, confirmed=None, active="absent")
GONE = state(running=None)  # its unit file was taken away, and the engine serves


@pytest.mark.parametrize(
    ("op", "now", "wanted", "kind", "reason"),
    [
        ("swap", state(manifest=RATIO_2), Wanted(NEW, RATIO_4), "swap",
         "restart: hicache-ratio 2.0 → 4.0"),
        ("swap", state(), Wanted(NEW), "swap", "restart: release aaaaaaaaaaaa → bbbbbbbbbbbb"),
        ("swap", state(manifest=RATIO_2), Wanted(OLD, RATIO_2, False), "none",
         "no restart: nothing changed"),
        ("swap", state(manifest=RATIO_2), Wanted(OLD, SOAK, True), "stage",
         "no restart: gates soak 30.0 → 60.0"),
        ("swap", state(confirmed=None), Wanted(OLD), "swap",
         "restart: this release runs, but its gates never passed"),
        ("swap", state(active="failed"), Wanted(OLD), "swap", "start: the unit is failed"),
        ("swap", ABSENT, Wanted(NEW), "swap", "start: the first release on this host"),
        ("swap", GONE, Wanted(OLD), "swap", "restart: the unit file is gone"),
        ("swap", {**GONE, "state": "inactive"}, Wanted(OLD), "swap",
         "start: its unit file is gone, and it does not run"),
        ("swap", state(running="0", confirmed=None), Wanted(NEW), "swap",
         "restart: takes over the unit that stood here before opsctl"),
        ("swap", HAND_MADE, Wanted(NEW, takeover=Takeover("i1")), "takeover",
         "no restart: the command line is the same"),
        ("swap", HAND_MADE, Wanted(NEW, takeover=Takeover("i0")), "swap",
         "restart: takes over the unit that stood here before opsctl"),
        ("swap", HAND_MADE, Wanted(NEW, takeover=Takeover("i1", ("env X unset → 1",))), "swap",
         "restart: env X unset → 1; takes over the unit that stood here before opsctl"),
        ("swap", {**HAND_MADE, "state": "failed"}, Wanted(NEW, takeover=Takeover("i1")), "swap",
         "restart: takes over the unit that stood here before opsctl"),
        ("restart", state(), None, "restart", "restart: asked for"),
        ("start", state(), None, "none", "is running"),
        ("start", state(active="inactive"), None, "start", "start: the unit is inactive"),
        ("start", state(active="activating", sub="start"), None, "none", "is running"),
        ("start", LOOPS, None, "start", "start: the unit is activating (auto-restart)"),
        ("swap", LOOPS, Wanted(OLD), "swap", "start: the unit is activating (auto-restart)"),
        ("stop", LOOPS, None, "stop", "asked for"),
        ("stop", state(), None, "stop", "asked for"),
        ("stop", state(active="activating"), None, "stop", "asked for"),
        ("stop", state(active="inactive"), None, "none", "is not running"),
        ("stop", ABSENT, None, "none", "is not running"),
        ("rollback", state(previous=NEW), None, "rollback",
         "restart: back to release bbbbbbbbbbbb"),
        ("rollback", state(previous="0"), None, "rollback",
         "restart: back to what stood there before opsctl"),
        ("rollback", state(), Wanted("0"), "rollback",
         "restart: back to what stood there before opsctl"),
        ("restore", state(running=NEW), None, "restore", "restart: back to release aaaaaaaaaaaa"),
        ("restore", state(), None, "none", "no restart: it runs already"),
    ],
)  # fmt: skip
def test_decisions(op: Any, now: Any, wanted: Wanted | None, kind: str, reason: str) -> None:
    action = decide(op, "h1", "kimi", now, wanted)
    assert (action.kind, action.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("op", "now", "words"),
    [
        ("restart", ABSENT, "kimi is not deployed here"),
        ("start", ABSENT, "kimi is not deployed here"),
        ("rollback", state(), "no earlier release of kimi"),
        ("restore", state(confirmed=None), "no confirmed release of kimi"),
        ("swap", state(), "no release of kimi is staged"),
    ],
)
def test_what_cannot_be_done(op: Any, now: Any, words: str) -> None:
    with pytest.raises(OpsctlError, match=words):
        decide(op, "h1", "kimi", now, None)


def said(*states: dict[str, Any]) -> dict[str, Any]:
    return {"services": list(states)}


def test_the_canary_first_then_as_the_inventory_says() -> None:
    services = {name: ["kimi"] for name in ("h1", "h2", "h3")}
    plan = make("restart", services, dict.fromkeys(services, said(state())), canary="h2")
    assert [action.host for action in plan.actions] == ["h2", "h1", "h3"]
    with pytest.raises(NothingSelected, match="canary h9"):
        ordered(["h1"], "h9")


def test_an_empty_selection_is_an_error() -> None:
    with pytest.raises(NothingSelected):
        make("restart", {"h1": []}, {"h1": said()})


def test_a_silent_host_stops_it_before_anything_is_touched() -> None:
    answers = {"h1": said(state()), "h2": Unreachable("no answer", host="h2", step="connect")}
    with pytest.raises(Unreachable, match=r"nothing was touched.*h2: no answer") as caught:
        make("restart", {"h1": ["kimi"], "h2": ["kimi"]}, answers)
    assert caught.value.host == "h2"
    with pytest.raises(OpsctlError, match="h2"):
        make("restart", {"h1": ["kimi"], "h2": ["kimi"]}, {"h1": said(state())})


def test_a_run_in_flight_anywhere_stops_it() -> None:
    busy = state(
        run={"run": "r7", "active": True, "phase": "gates"},
        lock={"owner": "eve@ctl", "reason": "raise ratio", "run": "r7"},
    )
    answers = {"h1": said(state()), "h2": said(busy)}
    with pytest.raises(LockHeld, match="r7, phase gates, of eve@ctl: raise ratio") as caught:
        make("restart", {"h1": ["kimi"], "h2": ["kimi"]}, answers)
    assert caught.value.exit_code == 7


def test_a_run_that_is_over_stops_nothing() -> None:
    over = state(run={"run": "r7", "active": False, "phase": "confirm"}, lock={"owner": "eve"})
    assert make("restart", {"h1": ["kimi"]}, {"h1": said(over)}).changes


def test_a_hand_on_the_host_is_told_though_nothing_changed() -> None:
    drift = {"id": "drift", "status": "fail", "detail": "drop-ins change the unit: /x.conf"}
    now = state(manifest=RATIO_2, checks=[drift])
    action = decide("swap", "h1", "kimi", now, Wanted(OLD, RATIO_2, False))
    assert action.reason.endswith("but on the host drop-ins change the unit: /x.conf")


def test_a_unit_edited_by_hand_is_put_right() -> None:
    now = state(running="0", manifest=None)
    now["release"]["edited"] = True
    action = decide("swap", "h1", "kimi", now, Wanted(OLD, RATIO_2, False))
    assert (action.kind, action.reason) == ("swap", "restart: the unit was edited by hand")


def back_to_zero(**zero: Any) -> dict[str, Any]:
    now = state(previous="0", manifest=RATIO_2)
    now["release"]["zero"] = zero
    return now


def test_release_0_that_cannot_start_is_told_before_anything_stops() -> None:
    lacks = "release 0, the unit that stood there before opsctl: EnvironmentFile=/a is not there"
    with pytest.raises(OpsctlError, match="EnvironmentFile=/a is not there"):
        decide("rollback", "h1", "kimi", back_to_zero(missing=[lacks], keys=False), None)
    now = back_to_zero(missing=[lacks], keys=False)
    assert decide("rollback", "h1", "kimi", now, Wanted(NEW)).kind == "rollback"


GONE = ["/opt/llm/run.sh of ExecStart= is not there"]
NO_WAY = "; should it fail, nothing could be restored: /opt/llm/run.sh of ExecStart= is not there"


@pytest.mark.parametrize(
    ("release", "more", "takeover", "warned"),
    [
        ({"running": "0", "missing": GONE}, {}, None, True),
        ({"running": "0", "missing": GONE}, {"invocation": "i1"}, Takeover("i1"), True),
        ({"running": "0", "missing": []}, {}, None, False),
        ({"running": OLD, "confirmed": OLD, "zero": {"missing": GONE}},
         {"taken_over": {"later": []}}, None, True),
        # what has been started by its own unit is what comes back
        ({"running": OLD, "confirmed": OLD, "zero": {"missing": GONE}}, {}, None, False),
    ],
)  # fmt: skip
def test_a_way_back_that_is_closed_is_told_before_it_is_needed(
    release: Any, more: Any, takeover: Any, warned: bool
) -> None:
    now = {**state(**more), "release": {"confirmed": None, **release}}
    action = decide("swap", "h1", "kimi", now, Wanted(NEW, takeover=takeover))
    assert action.reason.endswith(NO_WAY) is warned, action.reason


@pytest.mark.parametrize("takeover", [None, Takeover("i1")])
def test_an_old_unit_that_was_edited_since_it_was_kept_is_told(takeover: Any) -> None:
    said = "edited since release 0 was kept of it: its text of now becomes release 0"
    for edited in (True, False):
        zero = {"missing": [], "keys": False, "edited": edited}
        now = {
            **state(invocation="i1"),
            "release": {"running": "0", "confirmed": "0", "zero": zero},
        }
        action = decide("swap", "h1", "kimi", now, Wanted(NEW, takeover=takeover))
        assert (said in action.reason) is edited, action.reason
        back = decide("restore", "h1", "kimi", now, None)
        assert back.kind == "none"
        assert back.reason.endswith("it was edited since") is edited


def test_what_release_0_brings_back_is_told() -> None:
    now = back_to_zero(missing=[], keys=True)
    reason = decide("rollback", "h1", "kimi", now, None).reason
    assert "up to 60 s to drain" in reason
    assert reason.endswith("; keys stand in the command line again")
    quiet = decide("rollback", "h1", "kimi", back_to_zero(missing=[], keys=False), None).reason
    assert "keys" not in quiet


@pytest.mark.parametrize("op", ["swap", "rollback"])
@pytest.mark.parametrize(("failed", "told"), [(NEW, True), (OLD, False)])
def test_a_release_that_failed_here_is_named_before_it_is_tried_again(
    op: Any, failed: str, told: bool
) -> None:
    run = {"run": "r", "failed": {"release": failed, "cause": "start: exit 1", "time": 0.0}}
    now = {**state(previous=NEW), "run": run}
    wanted = Wanted(NEW, manifest(NEW), True) if op == "swap" else None
    action = decide(op, "h1", "kimi", now, wanted)
    words = "; this release failed here at 1970-01-01 00:00:00Z: start: exit 1"
    assert action.reason.endswith(words) is told


def test_where_nothing_is_done_a_hand_on_the_host_is_told_all_the_same() -> None:
    drift = {"id": "drift", "status": "fail", "detail": "drop-ins change the unit: /x.conf"}
    touched, well = (said(state(manifest=RATIO_2, checks=c)) for c in ([drift], []))
    wanted = {(name, "kimi"): Wanted(OLD, RATIO_2) for name in ("h1", "h2")}
    plan = make("swap", {"h1": ["kimi"], "h2": ["kimi"]}, {"h1": touched, "h2": well}, wanted)
    assert not plan.changes
    (told,) = plan.told
    assert (told.host, told.reason) == (
        "h1", "no restart: nothing changed; but on the host drop-ins change the unit: /x.conf",
    )  # fmt: skip


@pytest.mark.parametrize("down", [state(active="failed"), LOOPS, state(active="inactive")])
@pytest.mark.parametrize("op", ["restart", "swap"])
def test_a_host_whose_service_does_not_run_comes_before_those_that_serve(
    op: Any, down: dict[str, Any]
) -> None:
    names = ["h1", "h2", "h3"]
    services = {name: ["kimi"] for name in names}
    wanted = {(name, "kimi"): Wanted(NEW) for name in names}
    answers = {"h1": said(state()), "h2": said(state()), "h3": said(down)}
    plan = make(op, services, answers, wanted)
    assert [a.host for a in plan.actions] == ["h3", "h1", "h2"]
    assert all("meanwhile" not in a.reason for a in plan.actions)
    tried = make(op, services, answers, wanted, canary="h2")
    assert [a.host for a in tried.actions] == ["h2", "h3", "h1"]
    assert "; meanwhile kimi does not run on h3 (" in tried.actions[0].reason


def test_a_host_where_nothing_was_deployed_yet_keeps_its_place() -> None:
    services = {"h1": ["kimi"], "h2": ["kimi"]}
    wanted = {(name, "kimi"): Wanted(NEW) for name in services}
    plan = make("swap", services, {"h1": said(state()), "h2": said(ABSENT)}, wanted)
    assert [a.host for a in plan.actions] == ["h1", "h2"]
