"""What restart, start and rollback show of the host's own release before they touch anything."""

import copy
import json

import pytest

from opsctl.errors import OpsctlError
from tests.unit.cli.conftest import REFERENCE, kept
from tests.unit.cli.test_cli_changing import change, guarded, verbs
from tests.unit.cli.test_cli_plan import facts

MANIFEST = REFERENCE["services"][0]["manifest"]
BEFORE = {**MANIFEST["flags"], "hicache-ratio": 2.0}
DIFF = "--- sglang-kimi.service (3f9a)\n+++ sglang-kimi.service (a1b2)\n-ratio 4.0\n+ratio 2.0\n"
PREVIOUS = "a1b2" * 16


@pytest.fixture
def hosts(cli):
    """Their earlier release had another ratio; what it would take can be forecast."""
    guarded(cli)
    measured = {**facts()["model"], "path": MANIFEST["model"]["path"]}
    ranks = REFERENCE["services"][0]["start"]["ranks"]
    start = {"gpu_key": "k", "ranks": ranks, "digest": PREVIOUS, "engine_version": "0.5.9"}
    for host in cli.hosts.values():
        host.verbs |= {
            "release": lambda call: kept(
                call, diff=DIFF, flags=BEFORE if call.args[1] == PREVIOUS else MANIFEST["flags"]
            ),
            "facts": {**facts(), "model": measured, "starts": [start]},
        }
    return cli


def test_rollback_shows_what_the_earlier_release_changes_takes_and_lasts(hosts):
    done = hosts("rollback", "--limit", "h1", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "h1 kimi: restart: back to release a1b2a1b2a1b2: hicache-ratio 4.0 → 2.0" in done.stdout
    assert "  -ratio 4.0\n  +ratio 2.0\n" in done.stdout
    for words in ("forecast: ", "RAM", "takes ", "drain", "gates"):
        assert words in done.stdout, words
    assert verbs(hosts, "h1") == ["collect", "release", "facts"]
    assert hosts.hosts["h1"].said("release")[0].args == ("kimi", PREVIOUS)


def test_for_programs_it_is_what_plan_tells(hosts):
    (step,) = json.loads(hosts("rollback", "--limit", "h1", "--dry-run", "-o", "json").stdout)[
        "steps"
    ]
    assert (step["action"], step["diff"]) == ("rollback", DIFF.splitlines())
    assert step["why"] == ["hicache-ratio 4.0 → 2.0"]
    assert step["figures"] and step["advisories"] is not None
    assert [one["step"] for one in step["duration"]["steps"]] == ["drain", "stop", "start", "gates"]


@pytest.mark.parametrize(
    ("verb", "state", "digest"),
    [
        ("restart", {}, MANIFEST["digest"]),
        ("restart", {"release": {"running": "0", "confirmed": None}}, "0"),
        ("restart", {"release": {"running": PREVIOUS, "confirmed": None}}, PREVIOUS),
        ("start", {"state": "inactive"}, MANIFEST["digest"]),
        (
            "restart",
            {"release": {"running": "0", "confirmed": PREVIOUS, "edited": True}},
            PREVIOUS,
        ),
    ],
)
def test_the_release_that_the_guard_will_bring_up(hosts, verb, state, digest):
    change(hosts, "h1", **state)
    assert hosts(verb, "--limit", "h1", "--dry-run").exit_code == 0
    assert hosts.hosts["h1"].said("release")[0].args == ("kimi", digest)


def test_what_would_keep_it_from_starting_ends_it_before_any_host_is_touched(hosts):
    def gone(call):
        return kept(call, problems=["/srv/models/Kimi-K2.5 is not there"])

    hosts.hosts["h2"].verbs["release"] = gone
    for more in (["--dry-run"], ["--yes"]):
        done = hosts("restart", *more)
        assert done.exit_code == 1
        assert "would not start: /srv/models/Kimi-K2.5 is not there" in done.stderr
        assert "h1 kimi: restart: asked for" in done.output, "and all of the plan is shown"
    assert "lock" not in verbs(hosts, "h1")


def test_what_does_not_fit_by_the_forecast_is_told_and_done(hosts):
    host = hosts.hosts["h1"]
    small = {"total": 40 << 30, "available": 30 << 30, "swap_total": 0, "swap_used": 0}
    host.verbs["facts"] = {**host.verbs["facts"], "memory": small}
    done = hosts("rollback", "--limit", "h1")
    assert "forecast: does not fit" in done.stderr
    assert done.exit_code == 0 and "launch" in verbs(hosts, "h1")


@pytest.mark.parametrize("verb", ["release", "facts"])
def test_a_host_that_cannot_tell_is_rolled_back_all_the_same(hosts, verb):
    hosts.hosts["h1"].verbs[verb] = OpsctlError("the model's folder cannot be read")
    done = hosts("rollback", "--limit", "h1")
    assert done.exit_code == 0, done.output
    words = "h1: what will come of it is not known: the model's folder cannot be read"
    assert words in done.stderr and "back to release a1b2a1b2a1b2" in done.stderr
    assert "launch" in verbs(hosts, "h1")


def test_a_unit_of_other_hands_has_a_diff_and_no_forecast(hosts):
    release = copy.deepcopy(REFERENCE["services"][0]["release"])
    change(hosts, "h1", release={**release, "previous": "0"})
    done = hosts("rollback", "--limit", "h1", "--dry-run")
    assert "back to what stood there before opsctl" in done.stdout and "+ratio 2.0" in done.stdout
    assert "forecast" not in done.stdout
    assert verbs(hosts, "h1") == ["collect", "release"]


def test_stop_asks_nothing_of_it(hosts):
    assert hosts("stop", "kimi", "--limit", "h1", "--yes").exit_code == 0
    assert "release" not in verbs(hosts, "h1")


def test_a_version_that_is_not_known_here_is_rolled_back_to_all_the_same(hosts):
    """Somebody else's catalogue had it."""
    engine = {"version": "0.4.1", "root": "/opt/sglang/0.4.1"}
    hosts.hosts["h1"].verbs["release"] = lambda call: kept(call, diff=DIFF, engine=engine)
    done = hosts("rollback", "--limit", "h1")
    assert done.exit_code == 0, done.output
    for words in ("back to release a1b2a1b2a1b2: 2 changes", "engine version 0.5.9 → 0.4.1"):
        assert words in done.stderr
    assert "+ratio 2.0" in done.stderr and "forecast: unknown" in done.stderr
