"""Verbs that change hosts: plan, consent, what hosts are told, how it ends."""

import copy
import json

import pytest

from opsctl.cli import changing
from opsctl.errors import LockHeld, OpsctlError
from opsctl.remote import onhost
from opsctl.rollout.run import whoami

A, B = "a" * 64, "b" * 64
GATE = {"id": "ranks", "status": "fail", "detail": "TP3 missing", "evidence": ["TP2 spoke"]}


def change(cli, name, **parts):
    answer = copy.deepcopy(cli.hosts[name].verbs["collect"])
    answer["services"][0].update(parts)
    cli.hosts[name].verbs["collect"] = answer


def events(outcome, **more):
    return [
        {"n": 1, "time": 100.0, "event": "phase", "phase": "start"},
        {"n": 2, "time": 101.0, "event": "progress", "ranks": {"TP0": "kv"}, "idle": 0.0},
        {"n": 3, "time": 150.0, "event": "result", "outcome": outcome, "release": A,
         "seconds": 50.0, **more},
    ]  # fmt: skip


def guarded(cli, outcome="confirmed", *names, **more):
    """Hosts whose guard ends like this."""
    for name in names or ("h1", "h2"):
        cli.hosts[name].verbs |= {
            "lock": {},
            "unlock": {},
            "launch": {},
            "stop": {},
            "remove": {},
            "follow": lambda call: iter(events(outcome, **more)),
        }


def verbs(cli, name):
    return [call.verb for call in cli.hosts[name].calls]


LOOKED = ["collect", "release", "facts"]


def test_off_a_terminal_a_fleet_is_not_changed_unasked(cli):
    guarded(cli)
    done = cli("restart", "kimi")
    assert done.exit_code == 2
    assert "h1 kimi: restart: asked for" in done.stderr
    assert "this changes h1, h2, and there is no terminal to ask on" in done.stderr
    assert "--yes" in done.stderr
    assert verbs(cli, "h1") == verbs(cli, "h2") == LOOKED


def test_hosts_that_are_all_named_were_meant(cli):
    guarded(cli)
    assert cli("restart", "kimi", "--limit", "h1").exit_code == 0
    assert cli("restart", "kimi", "--limit", "gpu").exit_code == 2
    assert cli("restart", "--yes", "--limit", "h1", "--limit", "h2").exit_code == 2
    for empty in ("", ",", " , "):  # --limit "$HOST" without a HOST is not the whole fleet
        done = cli("restart", "kimi", "--yes", "--limit", empty)
        assert done.exit_code == 2 and "names no host" in done.stderr


def test_restart_one_host_after_the_other(cli):
    guarded(cli)
    done = cli("restart", "--yes", "--reason", "new driver")
    assert done.exit_code == 0, done.output
    assert verbs(cli, "h1") == [*LOOKED, "lock", "launch", "follow", "unlock"]
    assert verbs(cli, "h2") == verbs(cli, "h1")
    lock = cli.hosts["h1"].said("lock")[0].args
    assert lock[0] == "kimi"
    assert lock[lock.index("--reason") + 1] == "new driver"
    assert "h1 kimi: start" in done.stderr
    assert "h1 kimi: 1 rank: kv 1" in done.stderr
    assert [line.split()[:4] for line in done.stdout.splitlines()] == [
        ["HOST", "SERVICE", "RESULT", "RELEASE"],
        ["h1", "kimi", "confirmed", "aaaaaaaaaaaa"],
        ["h2", "kimi", "confirmed", "aaaaaaaaaaaa"],
    ]


def test_results_for_programs(cli):
    guarded(cli)
    done = cli("restart", "--yes", "-o", "json")
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert [(r["host"], r["outcome"]) for r in document["results"]] == [
        ("h1", "confirmed"),
        ("h2", "confirmed"),
    ]


@pytest.mark.parametrize(("outcome", "code"), [("rolled_back", 5), ("failed", 6)])
def test_what_failed_ends_the_run_and_says_why(cli, outcome, code):
    guarded(cli, outcome, cause="ranks: TP3 missing", checks=[GATE], log=["RuntimeError: x"])
    done = cli("restart", "--yes")
    assert done.exit_code == code
    assert verbs(cli, "h2") == LOOKED, "the second host is not touched"
    assert "error: kimi on h1:" in done.stderr
    assert "ranks: TP3 missing" in done.stderr
    assert "  │ RuntimeError: x" in done.stderr
    earlier = " --all-starts" if outcome == "rolled_back" else "\n"
    assert f"next: opsctl logs kimi --host h1{earlier}" in done.stderr
    assert "not touched: h2 kimi" in done.stderr
    assert "TP2 spoke" in done.stdout


def test_a_dry_run_changes_nothing(cli):
    guarded(cli)
    done = cli("restart", "--dry-run")
    assert done.exit_code == 0
    assert [line for line in done.stdout.splitlines() if line[0] == "h"] == [
        "h1 kimi: restart: asked for",
        "h2 kimi: restart: asked for",
    ]
    assert cli("restart", "--dry-run", "--exit-code").exit_code == 3
    document = json.loads(cli("restart", "--dry-run", "-o", "json").stdout)
    assert document["changes"] == 2
    assert verbs(cli, "h1") == LOOKED * 3


def test_nothing_to_do_is_no_question_and_no_error(cli):
    guarded(cli)
    done = cli("start", "kimi")
    assert done.exit_code == 0
    assert "no change: is running" in done.stderr
    assert verbs(cli, "h1") == ["collect"]
    outcomes = json.loads(cli("start", "-o", "json").stdout)["results"]
    assert [result["outcome"] for result in outcomes] == ["unchanged", "unchanged"]
    assert cli("start", "--dry-run", "--exit-code").exit_code == 0


def test_start_what_is_stopped(cli):
    guarded(cli)
    change(cli, "h2", state="inactive")
    assert cli("start", "--yes").exit_code == 0
    assert verbs(cli, "h1") == ["collect"]
    assert json.loads(cli.hosts["h2"].said("launch")[0].stdin)["op"] == "start"


def test_stop_drains_under_the_lock(cli):
    guarded(cli)
    done = cli("stop", "kimi", "--limit", "h1", "--yes")
    assert done.exit_code == 0, done.output
    assert verbs(cli, "h1") == ["collect", "lock", "stop", "unlock"]
    assert "stopped" in done.stdout


def test_rollback_needs_no_name(cli):
    guarded(cli)
    assert cli("rollback", "--limit", "h1", "--yes").exit_code == 0
    run = json.loads(cli.hosts["h1"].said("launch")[0].stdin)
    assert run["op"] == "rollback"
    assert run["target"] == "a1b2" * 16


def test_rollback_without_an_earlier_release_is_an_error(cli):
    change(cli, "h1", release={"running": A, "confirmed": A, "previous": None, "pending": None})
    done = cli("rollback", "--limit", "h1", "--yes")
    assert done.exit_code == 1
    assert "no earlier release" in done.stderr


def test_a_silent_host_stops_a_change_before_it_begins(cli):
    guarded(cli)
    cli.lose("h2")
    done = cli("restart", "--yes")
    assert done.exit_code == 4
    assert "nothing was touched" in done.stderr
    assert verbs(cli, "h1") == ["collect"]


def test_a_held_lock_ends_with_7(cli):
    guarded(cli)
    cli.hosts["h1"].verbs["lock"] = {
        "held": {"owner": "ann@desk", "reason": "driver", "run": "r", "since": "2026-03-01"}
    }
    done = cli("restart", "--yes", "--limit", "h1")
    assert done.exit_code == LockHeld.exit_code == 7
    assert "ann@desk" in done.stderr


def test_detach_returns_at_once_and_says_how_to_look(cli):
    guarded(cli)
    done = cli("restart", "--yes", "--limit", "h1", "--detach")
    assert "follow" not in verbs(cli, "h1")
    assert "opsctl watch kimi" in done.stderr
    assert "error" not in done.stderr
    assert done.exit_code == 0
    assert (
        json.loads(cli("restart", "--yes", "--limit", "h1", "--detach", "-o", "json").stdout)[
            "results"
        ][0]["outcome"]
        == "detached"
    )


def test_a_bad_timeout_is_refused_before_anything(cli):
    done = cli("restart", "--yes", "--timeout", "soon")
    assert done.exit_code == 2
    assert "--timeout soon" in done.stderr
    assert verbs(cli, "h1") == []


@pytest.mark.parametrize(("answer", "code", "done"), [("y\n", 0, 1), ("\n", 1, 0), ("n\n", 1, 0)])
def test_on_a_terminal_it_asks(cli, monkeypatch, answer, code, done):
    guarded(cli)
    monkeypatch.setattr(changing, "at_terminal", lambda: True)
    result = cli("restart", "kimi", input=answer)
    assert "Go on with 2 changes on 2 hosts? [y/N]" in result.stderr
    assert result.exit_code == code
    assert verbs(cli, "h1").count("launch") == done


def test_remove_always_needs_consent(cli):
    guarded(cli)
    done = cli("remove", "kimi", "--limit", "h1")
    assert done.exit_code == 2
    assert "remove" not in verbs(cli, "h1")
    done = cli("remove", "kimi", "--limit", "h1", "--yes", "-o", "json")
    assert done.exit_code == 0, done.output
    assert verbs(cli, "h1")[-3:] == ["lock", "remove", "unlock"]
    assert json.loads(done.stdout)["results"] == [
        {"host": "h1", "service": "kimi", "removed": True}
    ]


def test_remove_tells_which_host_failed(cli):
    guarded(cli)
    cli.hosts["h2"].verbs["remove"] = OpsctlError("it is still draining", step="remove")
    done = cli("remove", "kimi", "--yes")
    assert done.exit_code == 1
    assert "h1 kimi: removed" in done.stderr
    assert "h2, remove: it is still draining" in done.stderr
    assert "unlock" in verbs(cli, "h2"), "the lock is given back"


def test_remove_takes_away_the_lock_of_a_run_that_is_over(cli):
    guarded(cli)
    held = [{"held": {"owner": "ann@desk", "run": "r-1", "state": "over"}}, {"locked": True}]
    cli.hosts["h1"].verbs["lock"] = lambda call: held.pop(0)
    done = cli("remove", "kimi", "--limit", "h1", "--yes")
    assert done.exit_code == 0, done.output
    assert verbs(cli, "h1")[-5:] == ["lock", "unlock", "lock", "remove", "unlock"]


LOCK = {"owner": "ann@desk", "reason": "ratio 4", "run": "r-1", "since": 1772409908.0}


def test_unlock_shows_whose_it_is_and_needs_yes(cli):
    guarded(cli)
    change(cli, "h1", lock=LOCK)
    done = cli("unlock", "kimi")
    assert done.exit_code == 2
    whose = "locked by ann@desk since 2026-03-02 00:05:08Z, run r-1: ratio 4"
    assert f"h1 kimi: unlock: {whose}" in done.stderr
    assert "unlock" not in verbs(cli, "h1")
    done = cli("unlock", "kimi", "--yes", "--reason", "ann has left")
    assert done.exit_code == 0, done.output
    told = ("kimi", "--run", "r-1", "--by", whoami(), "--reason", "ann has left")
    assert cli.hosts["h1"].said("unlock")[0].args == told
    assert "unlock" not in verbs(cli, "h2")


def test_what_is_done_at_once_cannot_be_detached_from(cli):
    change(cli, "h1", lock=LOCK)
    for verb in ("unlock", "remove"):
        done = cli(verb, "kimi", "--limit", "h1", "--yes", "--detach")
        assert done.exit_code == 2
        assert f"{verb} is " in done.stderr
    assert verbs(cli, "h1") == []


def test_the_time_limit_of_a_removal_is_the_operators(cli, monkeypatch):
    guarded(cli)
    done = cli("remove", "kimi", "--limit", "h1", "--yes", "--timeout", "soon")
    assert done.exit_code == 2 and verbs(cli, "h1") == []
    limits = {}
    call = onhost.call

    def noted(host, verb, *arguments, **more):
        limits[verb] = more.get("timeout")
        return call(host, verb, *arguments, **more)

    monkeypatch.setattr(onhost, "call", noted)
    done = cli("remove", "kimi", "--limit", "h1", "--yes", "--timeout", "40s")
    assert done.exit_code == 0, done.output
    assert limits["remove"] == 40.0


def test_unlock_what_is_not_locked_is_an_error(cli):
    done = cli("unlock", "kimi", "--yes")
    assert done.exit_code == 2
    assert "kimi is not locked on h1, h2" in done.stderr


def test_watch_follows_what_is_going_on(cli):
    guarded(cli, "rolled_back", cause="health")
    change(cli, "h2", run={"run": "r-9", "active": True, "phase": "start"})
    done = cli("watch")
    assert done.exit_code == 5
    assert cli.hosts["h2"].said("follow")[0].args[:2] == ("kimi", "r-9")
    assert "launch" not in verbs(cli, "h2")


def test_watch_shows_how_a_run_ended_that_nobody_watched(cli):
    guarded(cli)
    change(cli, "h1", run={"run": "r-1", "active": False, "phase": ""}, lock=LOCK)
    assert "a run has ended unwatched" in cli("status").stdout
    done = cli("watch", "kimi")
    assert done.exit_code == 0, done.output
    assert "confirmed" in done.stdout
    assert cli.hosts["h1"].said("unlock")[0].args == ("kimi", "--run", "r-1")


def test_watch_without_a_run_says_so(cli):
    done = cli("watch")
    assert done.exit_code == 2
    assert "no run is going on" in done.stderr
