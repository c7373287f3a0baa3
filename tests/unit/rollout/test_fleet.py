"""Whole fleets of fake hosts: what a rollout does when something goes wrong anywhere in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from opsctl.errors import OpsctlError, Unreachable
from opsctl.release.model import File, Release
from opsctl.remote.fake import Call, FakeHost
from opsctl.remote.host import Silent
from opsctl.rollout import Limits, Results, resume, run
from opsctl.rollout.model import Action, Plan
from opsctl.rollout.watch import Clock

NEW = "b" * 64
EVENTS: list[dict[str, Any]] = [
    {"n": 1, "event": "phase", "phase": "drain"},
    {"n": 2, "event": "phase", "phase": "start"},
    {"n": 3, "event": "progress", "ranks": {"TP0": "weights"}},
    {"n": 4, "event": "gate", "check": {"id": "ranks", "status": "pass", "detail": "1 of 1"}},
]
CHECK = {"id": "health", "status": "fail", "detail": "no answer", "evidence": []}


def result(outcome: str = "confirmed", n: int = 5, **more: Any) -> dict[str, Any]:
    return {"n": n, "event": "result", "outcome": outcome, "release": NEW, "seconds": 9.0, **more}


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> Clock:
        def sleep(seconds: float) -> None:
            self.now += seconds

        return Clock(lambda: self.now, sleep)


@dataclass
class Guarded(FakeHost):
    """A host with a guard. `streams`: what each call of `follow` gives, one after the other; an
    exception in it is raised there."""

    streams: list[Sequence[Any]] = field(default_factory=lambda: [[*EVENTS, result()]])
    from_: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.verbs = {
            "lock": {},
            "unlock": {},
            "launch": {},
            "stop": {},
            "stage": {"changed": True},
            "follow": self._follow,
            **self.verbs,
        }

    def _follow(self, call: Call) -> Iterator[dict[str, Any]]:
        self.from_.append(int(call.args[call.args.index("--from") + 1]))
        for event in self.streams.pop(0) if len(self.streams) > 1 else self.streams[0]:
            if isinstance(event, BaseException):
                raise event
            yield event


def fleet(*hosts: FakeHost) -> dict[str, FakeHost]:
    return {host.name: host for host in hosts}


def plan(*names: str, kind: Any = "swap", op: Any = "swap") -> Plan:
    return Plan(op, tuple(Action(name, "kimi", kind, "restart: x", NEW) for name in names))


def done(hosts: dict[str, FakeHost], planned: Plan, **more: Any) -> Results:
    return run(hosts, planned, reason="raise ratio", clock=Time().clock(), **more)


def outcomes(results: Results) -> list[str]:
    return [result.outcome for result in results.results]


def verbs(host: FakeHost) -> list[str]:
    return [call.verb for call in host.calls]


def test_one_after_the_other_each_under_its_lock() -> None:
    hosts = fleet(Guarded("h1"), Guarded("h2"), Guarded("h3"))
    seen: list[tuple[str, Any]] = []
    results = done(hosts, plan("h1", "h2", "h3"), observer=lambda h, s, e: seen.append((h, e["n"])))
    assert outcomes(results) == ["confirmed"] * 3
    assert results.exit_code == 0
    assert seen == [(h, n) for h in ("h1", "h2", "h3") for n in (1, 2, 3, 4, 5)]
    for host in hosts.values():
        assert verbs(host) == ["lock", "launch", "follow", "unlock"]
    lock = hosts["h1"].said("lock")[0].args
    assert lock[0] == "kimi"
    assert lock[lock.index("--reason") + 1] == "raise ratio"
    assert "@" in lock[lock.index("--owner") + 1]
    launched = hosts["h1"].said("launch")[0].json
    assert (launched["op"], launched["target"], launched["run"]) == ("swap", NEW, results.run)
    # one name for the whole fleet, so that it can be found again on any host
    assert hosts["h3"].said("launch")[0].json["run"] == results.run


@pytest.mark.parametrize(
    ("end", "outcome", "code"),
    [
        (result("rolled_back", checks=[CHECK], cause="health: no answer"), "rolled_back", 5),
        (result("failed", checks=[CHECK], cause="health: no answer"), "failed", 6),
        ({**result("failed", cause="refused: no such user"), "seconds": 0.0}, "refused", 1),
    ],
)
def test_a_host_that_is_not_confirmed_ends_the_rollout(
    end: dict[str, Any], outcome: str, code: int
) -> None:
    hosts = fleet(Guarded("h1"), Guarded("h2", streams=[[*EVENTS, end]]), Guarded("h3"))
    results = done(hosts, plan("h1", "h2", "h3"))
    assert outcomes(results) == ["confirmed", outcome, "skipped"]
    assert results.exit_code == code
    assert hosts["h3"].calls == []
    assert verbs(hosts["h2"])[-1] == "unlock"
    error = results.error()
    assert error is not None
    assert error.host == "h2"
    assert "not touched: h3 kimi" in error.message
    assert end["cause"] in error.message


def test_a_held_lock_touches_nothing() -> None:
    held = {"held": {"owner": "eve@ctl", "reason": "driver", "run": "r1", "since": "x"}}
    hosts = fleet(Guarded("h1", verbs={"lock": held}), Guarded("h2"))
    results = done(hosts, plan("h1", "h2"))
    assert outcomes(results) == ["locked", "skipped"]
    assert results.exit_code == 7
    assert "eve@ctl" in results.results[0].cause
    assert verbs(hosts["h1"]) == ["lock"]


def test_unreachable_before_the_launch_is_harmless() -> None:
    gone = Unreachable("no answer", host="h2", step="connect")
    hosts = fleet(Guarded("h1"), Guarded("h2", verbs={"lock": gone}), Guarded("h3"))
    results = done(hosts, plan("h1", "h2", "h3"))
    assert outcomes(results) == ["confirmed", "unreachable", "skipped"]
    assert results.exit_code == 4


def test_a_lost_connection_is_resumed_where_it_broke() -> None:
    lost = Unreachable("the connection was lost", host="h1")
    host = Guarded(
        "h1",
        streams=[
            [*EVENTS[:2], lost],
            [lost],
            [lost],
            # a host may repeat what was seen; nobody sees it twice
            [*EVENTS[1:], result()],
        ],
    )
    seen: list[Any] = []
    results = done(fleet(host), plan("h1"), observer=lambda h, s, e: seen.append(e.get("n")))
    assert outcomes(results) == ["confirmed"]
    assert host.from_ == [1, 3, 3, 3]
    assert [n for n in seen if n] == [1, 2, 3, 4, 5]
    assert seen.count(None) == 1  # one note for one outage, not one a try


def test_silence_is_not_a_lost_connection() -> None:
    silent = Silent("said nothing for 60 s", host="h1")
    host = Guarded("h1", streams=[[EVENTS[0], silent]] + [[silent]] * 50 + [[*EVENTS, result()]])
    assert outcomes(done(fleet(host), plan("h1"))) == ["confirmed"]


def test_a_host_that_stays_away_is_given_up_with_words() -> None:
    lost = Unreachable("no sign of life for 15 s", host="h1")
    hosts = fleet(Guarded("h1", streams=[[EVENTS[0], lost], [lost]]), Guarded("h2"))
    results = done(hosts, plan("h1", "h2"), limits=Limits(lost=600))
    assert outcomes(results) == ["lost", "skipped"]
    assert results.exit_code == 4
    error = results.error()
    assert error is not None
    assert "finishes or restores by itself" in error.message
    assert "600 s" in error.message
    assert "opsctl watch kimi" in error.hint
    assert results.run in error.hint
    assert "unlock" not in verbs(hosts["h1"])  # its guard is at work under this lock


def test_an_answer_of_launch_that_got_lost_is_asked_for_again() -> None:
    answers: list[Any] = [Unreachable("the connection was lost", host="h1"), {"launched": False}]
    host = Guarded("h1", verbs={"launch": lambda call: answers.pop(0)})
    assert outcomes(done(fleet(host), plan("h1"))) == ["confirmed"]
    first, second = host.said("launch")
    assert first.stdin == second.stdin


def test_a_launch_that_stays_without_an_answer_may_have_been_one() -> None:
    lost = Unreachable("the connection was lost", host="h1")
    host = Guarded("h1", verbs={"launch": lost})
    assert outcomes(done(fleet(host), plan("h1"))) == ["lost"]
    assert "unlock" not in verbs(host)


def test_the_lock_of_a_run_that_is_over_is_taken_away() -> None:
    held = {"owner": "eve@ctl", "run": "r1", "since": 1764441000.0, "state": "over"}
    answers: list[Any] = [{"held": held}, {}]
    host = Guarded("h1", verbs={"lock": lambda call: answers.pop(0)})
    assert outcomes(done(fleet(host), plan("h1"))) == ["confirmed"]
    assert verbs(host) == ["lock", "unlock", "lock", "launch", "follow", "unlock"]
    assert host.said("unlock")[0].args == ("kimi", "--run", "r1")


def test_what_is_only_staged_gives_the_lock_back() -> None:
    host = Guarded("h1")
    only = Plan("swap", (Action("h1", "kimi", "stage", "no restart: gates.soak", NEW, NEW),))
    assert outcomes(done(fleet(host), only)) == ["staged"]
    assert verbs(host) == ["lock", "unlock"]


def test_a_launch_that_is_refused_gives_the_lock_back() -> None:
    refused = {"error": {"message": "the release is not staged", "hint": "opsctl deploy"}}
    host = Guarded("h1", verbs={"launch": refused})
    results = done(fleet(host), plan("h1"))
    assert outcomes(results) == ["refused"]
    assert results.exit_code == 1
    assert verbs(host) == ["lock", "launch", "unlock"]


def test_ctrl_c_detaches_and_starts_no_further_host() -> None:
    hosts = fleet(Guarded("h1", streams=[[EVENTS[0], KeyboardInterrupt()]]), Guarded("h2"))
    results = done(hosts, plan("h1", "h2"))
    assert outcomes(results) == ["detached", "skipped"]
    assert results.exit_code == 130
    assert hosts["h2"].calls == []
    assert "unlock" not in verbs(hosts["h1"])
    error = results.error()
    assert error is not None
    assert "the host finishes or restores by itself" in error.message


def test_ctrl_c_before_the_launch_leaves_nothing_behind() -> None:
    def interrupted(call: Call) -> Any:
        raise KeyboardInterrupt

    hosts = fleet(Guarded("h1", verbs={"stage": interrupted}), Guarded("h2"))
    release = Release("kimi", NEW, {}, {"unit": "x"})
    results = done(hosts, plan("h1", "h2"), releases={("h1", "kimi"): release})
    assert (outcomes(results), results.exit_code) == (["interrupted", "skipped"], 130)
    assert verbs(hosts["h1"]) == ["lock", "stage", "unlock"]


def test_a_release_is_sent_under_the_lock() -> None:
    release = Release("kimi", NEW, {"secrets/api-key": File(0o600, b"k3y")}, {"unit": "x"})
    host = Guarded("h1")
    assert outcomes(done(fleet(host), plan("h1"), releases={("h1", "kimi"): release}))
    assert verbs(host) == ["lock", "stage", "launch", "follow", "unlock"]
    sent = host.said("stage")[0]
    assert sent.json["digest"] == NEW
    assert all("k3y" not in word for word in sent.args)


def test_the_limit_of_watching_detaches() -> None:
    time = Time()

    def tick(host: str, service: str, event: Any) -> None:
        time.now += 10

    host = Guarded("h1")
    results = run(
        fleet(host), plan("h1"), observer=tick, limits=Limits(watch=25), clock=time.clock()
    )
    assert outcomes(results) == ["detached"]
    assert "watched for 25 s" in results.results[0].cause


def test_detach_is_for_one_service_on_one_host() -> None:
    host = Guarded("h1")
    results = done(fleet(host), plan("h1"), detach=True)
    assert (outcomes(results), results.exit_code) == (["detached"], 130)
    assert verbs(host) == ["lock", "launch"]
    with pytest.raises(OpsctlError, match="without watching"):
        done(fleet(host, Guarded("h2")), plan("h1", "h2"), detach=True)


def test_nothing_to_do_does_not_even_connect() -> None:
    host = Guarded("h1")
    results = done(fleet(host), plan("h1", kind="none"))
    assert (outcomes(results), results.exit_code, results.changed) == (["unchanged"], 0, False)
    assert host.calls == []


def test_stop() -> None:
    host = Guarded("h1")
    assert outcomes(done(fleet(host), plan("h1", kind="stop", op="stop"))) == ["stopped"]
    assert verbs(host) == ["lock", "stop", "unlock"]


def test_a_stop_is_watched_no_longer_than_the_operator_wants() -> None:
    host = Guarded("h1", verbs={"stop": Silent("did not end", host="h1")})
    stopping = plan("h1", kind="stop", op="stop")
    results = done(fleet(host), stopping, limits=Limits(watch=5.0))
    assert (outcomes(results), results.exit_code) == (["detached"], 130)
    assert "watched for 5 s" in results.results[0].cause
    assert verbs(host) == ["lock", "stop", "unlock"], "the lock is given back"
    assert outcomes(done(fleet(host), stopping)) == ["refused"], "without a limit it is an error"


def test_a_refusal_is_told_once() -> None:
    said = "refused before anything was touched: release b: port 30000 is held by PID 7 (python3)"
    refused = result("failed", cause=said, seconds=0.0, checks=[])
    results = done(fleet(Guarded("h1", streams=[[refused]])), plan("h1"))
    assert outcomes(results) == ["refused"]
    assert results.results[0].cause == "release b: port 30000 is held by PID 7 (python3)"


def test_a_fault_of_ours_is_not_made_a_result() -> None:
    def broken(call: Call) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        done(fleet(Guarded("h1", verbs={"launch": broken})), plan("h1"))


def knows(name: str, active: bool) -> dict[str, Any]:
    return {"services": [{"service": "kimi", "run": {"run": name, "active": active}}]}


def test_resume_watches_only_hosts_that_the_run_has_reached() -> None:
    hosts = fleet(Guarded("h1"), Guarded("h2"), Guarded("h3"))
    said = {"h1": knows("r1", False), "h2": knows("r1", True), "h3": knows("r0", False)}
    results = resume(hosts, said, "r1", clock=Time().clock())
    assert [(r.host, r.outcome) for r in results.results] == [
        ("h1", "confirmed"),
        ("h2", "confirmed"),
    ]
    assert verbs(hosts["h2"]) == ["follow", "unlock"]
    assert hosts["h3"].calls == []
    with pytest.raises(OpsctlError, match="no selected host has a run r9"):
        resume(hosts, said, "r9")


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (["confirmed", "unchanged", "staged", "stopped"], 0),
        (["confirmed", "skipped", "rolled_back"], 5),
        (["failed", "rolled_back"], 6),
        (["locked"], 7),
        (["unfit"], 8),
        (["unreachable"], 4),
        (["lost"], 4),
        (["detached", "skipped"], 130),
        (["refused"], 1),
        (["unreachable", "failed"], 6),
        (["locked", "unreachable"], 7),
    ],
)
def test_exit_codes(ends: list[Any], code: int) -> None:
    from opsctl.rollout import Result

    results = Results("r", "swap", tuple(Result("h1", "kimi", end) for end in ends))
    assert results.exit_code == code
    assert results.as_json()["ok"] is (code == 0)
