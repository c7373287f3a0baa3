"""What was done, by whom and why."""

import json

import pytest

A, B = "a" * 64, "b" * 64
FIRST = {
    "time": 1772409908.0, "run": "r1", "op": "swap", "owner": "ann@desk", "reason": "opsctl swap",
    "outcome": "confirmed", "release": A, "seconds": 310.0, "cause": "",
}  # fmt: skip
FAILED = {
    **FIRST, "time": 1772413508.0, "run": "r2", "outcome": "rolled_back", "failed": B,
    "reason": "new\x1b[2J model", "cause": "ranks: TP3 missing",
}  # fmt: skip
STAGED = {
    "time": 1772411000.0, "run": "r3", "op": "stage", "owner": "bob@ci", "reason": None,
    "outcome": "staged", "release": A, "min_available": 7,
}  # fmt: skip


@pytest.fixture
def told(cli):
    cli.hosts["h1"].verbs["history"] = {"service": "kimi", "entries": [FIRST, FAILED]}
    cli.hosts["h2"].verbs["history"] = {"service": "kimi", "entries": [STAGED]}
    return cli


def test_one_line_an_entry_the_newest_last(told):
    done = told("history")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:7] for line in lines[1:]] == [
        ["2026-03-02", "00:05:08Z", "h1", "kimi", "swap", "confirmed", "aaaaaaaaaaaa"],
        ["2026-03-02", "00:23:20Z", "h2", "kimi", "stage", "staged", "aaaaaaaaaaaa"],
        ["2026-03-02", "01:05:08Z", "h1", "kimi", "swap", "rolled", "back"],
    ]
    assert "ann@desk" in done.stdout and "bob@ci" in done.stdout
    assert "release bbbbbbbbbbbb failed; ranks: TP3 missing" in done.stdout
    assert "\x1b" not in done.stdout
    assert told.hosts["h1"].said("history")[0].args == ("kimi", "--lines", "10")


def test_for_programs_entries_are_as_they_were_written(told):
    document = json.loads(told("history", "kimi", "-n", "3", "-o", "json").stdout)
    assert document["ok"] is True
    assert document["entries"][1] == {"host": "h2", "service": "kimi", **STAGED}
    assert told.hosts["h1"].said("history")[0].args == ("kimi", "--lines", "3")
    lines = told("history", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["r1", "r3", "r2"]


def test_a_host_that_is_not_reached_hides_no_other(told):
    told.lose("h2")
    done = told("history")
    assert done.exit_code == 4
    assert "rolled back" in done.stdout and "h2" in done.stderr


def test_of_a_service_that_is_not_described_any_more(told):
    assert told("history", "old", "--limit", "h1").exit_code == 0
    assert told.hosts["h1"].said("history")[0].args[0] == "old"
