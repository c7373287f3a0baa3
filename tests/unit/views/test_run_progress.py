"""A run told line by line, and the same run drawn."""

import pytest

from opsctl.cli.console import plain
from opsctl.rollout.model import Result, Results
from opsctl.views.progress import Picture, advance, drawing, outcome, summary, tell


def told(events):
    picture, lines = Picture("h1", "kimi"), []
    for event in events:
        after = advance(picture, event)
        lines += tell(picture, after, event)
        picture = after
    return picture, lines


def progress(time, ranks, idle=0.0, moved="journal"):
    return {"time": time, "event": "progress", "ranks": ranks, "idle": idle, "moved": moved}


GATE = {"id": "ranks", "status": "fail", "detail": "TP3 missing", "evidence": ["TP2 said\x1b[1m x"]}
RUN = [
    {"n": 1, "time": 100.0, "event": "phase", "phase": "drain"},
    {"n": 2, "time": 110.0, "event": "phase", "phase": "start"},
    progress(120.0, {}),
    progress(125.0, {"TP0": "weights", "TP1": "weights"}),
    progress(127.0, {"TP0": "weights", "TP1": "weights"}),
    progress(130.0, {"TP0": "kv", "TP1": "weights"}),
    {"time": 140.0, "event": "gate", "check": GATE},
    {"time": 140.1, "event": "note", "text": "ranks: TP3 missing", "log": ["TP2 said\x1b[1m x"]},
    {"time": 141.0, "event": "note", "text": "tried once more", "log": ["last line"]},
    {"time": 142.0, "event": "phase", "phase": "restore"},
    {"time": 150.0, "event": "result", "outcome": "rolled_back", "release": "ab" * 32,
     "seconds": 50.0, "cause": "ranks: TP3 missing", "checks": [GATE]},
]  # fmt: skip


def test_lines_only_for_what_is_new():
    picture, lines = told(RUN)
    assert lines == [
        "h1 kimi: drain",
        "h1 kimi: start",
        "h1 kimi: 2 ranks: weights 2",
        "h1 kimi: 2 ranks: kv 1, weights 1",
        "h1 kimi: ✗ ranks: TP3 missing",
        "h1 kimi:   │ TP2 said␛[1m x",
        "h1 kimi: tried once more",
        "h1 kimi:   │ last line",
        "h1 kimi: restore",
        "h1 kimi: a gate failed; the last confirmed release was restored and serves, release "
        "abababababab, after 50 s: ranks: TP3 missing",
    ]
    assert picture.began == 100.0


def test_a_long_silence_is_told_once_a_minute():
    ranks = {"TP0": "weights"}
    events = [
        progress(0.1, ranks),
        *(progress(t, ranks, idle=float(t)) for t in range(10, 200, 10)),
    ]
    _, lines = told(events)
    assert [line for line in lines if "nothing has moved" in line] == [
        "h1 kimi: nothing has moved for 1 min; 1 rank: weights 1",
        "h1 kimi: nothing has moved for 2 min; 1 rank: weights 1",
        "h1 kimi: nothing has moved for 3 min; 1 rank: weights 1",
    ]


def test_a_long_load_that_moves_says_that_it_is_alive():
    ranks = {"TP0": "weights"}
    _, lines = told([progress(0.1 + t, ranks) for t in range(0, 130, 10)])
    assert lines == [
        "h1 kimi: 1 rank: weights 1",
        "h1 kimi: waiting for 1 min; 1 rank: weights 1",
        "h1 kimi: waiting for 2 min; 1 rank: weights 1",
    ]


def test_another_start_forgets_the_ranks_of_the_one_before():
    picture, _ = told(
        [progress(1, {"TP0": "kv"}), {"time": 2, "event": "phase", "phase": "restore"}]
    )
    assert picture.ranks == {}


def test_a_gate_that_is_asked_again_is_shown_once():
    good = {"id": "health", "status": "pass", "detail": "3 in a row", "evidence": []}
    picture, _ = told([{"event": "gate", "check": {**good, "status": "fail"}},
                       {"event": "gate", "check": good}])  # fmt: skip
    assert [g["status"] for g in picture.gates] == ["pass"]


def test_events_of_a_newer_host_change_nothing():
    picture, lines = told([{"event": "novelty", "time": 5.0}])
    assert lines == []
    assert picture.phase == "waiting"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ({}, "no rank has spoken yet"),
        ({"TP0": ""}, "1 rank: started 1"),
        ({"TP0": "kv", "TP1": "kv", "TP2": "weights"}, "3 ranks: kv 2, weights 1"),
    ],
)
def test_summaries(ranks, text):
    assert summary(ranks) == text


def test_the_picture_on_a_terminal():
    picture, _ = told(RUN[:6])
    text = plain(drawing({("h1", "kimi"): picture}))
    assert "h1 kimi: start, 30 s; 2 ranks: kv 1, weights 1; moving: journal" in text
    assert "TP0 kv" in text
    later = plain(drawing({("h1", "kimi"): picture}, {("h1", "kimi"): 15.0}))
    assert "start, 45 s" in later
    picture, _ = told(RUN)
    text = plain(drawing({("h1", "kimi"): picture}))
    assert "✗ ranks TP3 missing" in " ".join(text.split())
    assert "TP2 said␛[1m x" in text


def test_a_run_that_ended_well_takes_one_line():
    good = {"id": "unit", "status": "pass", "detail": "runs", "evidence": []}
    odd = {"id": "ranks", "status": "inconclusive", "detail": "unknown", "evidence": ["TP0: 1"]}
    events = [RUN[1], *({"event": "gate", "check": c} for c in (good, odd))]
    at_work, _ = told(events)
    lines = plain(drawing({("h1", "kimi"): at_work})).splitlines()
    assert [line.split()[0] for line in lines] == ["h1", "✓", "?"]
    ended, _ = told([*events, {"event": "result", "outcome": "confirmed"}])
    assert plain(drawing({("h1", "kimi"): ended})) == "h1 kimi: confirmed\n"


def test_ranks_stand_in_their_order():
    picture, _ = told([progress(1, {"TP10": "kv", "TP2": "kv", "TP1": "kv"})])
    line = plain(drawing({("h1", "kimi"): picture})).splitlines()[1]
    assert line.split() == ["TP1", "kv", "TP2", "kv", "TP10", "kv"]


@pytest.mark.parametrize("kind", ["confirmed", "rolled_back", "failed", "unchanged"])
def test_every_outcome_has_words(kind):
    assert outcome({"outcome": kind}) != kind or kind == "confirmed"


def test_a_refusal_is_not_told_as_a_failure():
    refused = {
        "event": "result",
        "outcome": "failed",
        "seconds": 0.0,
        "checks": [],
        "cause": "refused before anything was touched: port 30000 is held by PID 7 (nc)",
    }
    assert outcome(refused) == refused["cause"]
    assert outcome({**refused, "seconds": 3.0}).startswith("failed, and nothing was restored")


@pytest.mark.parametrize(
    ("cause", "blamed"),
    [("ranks: TP3 missing", True), ("the host lost power or was restarted during the swap", False)],
)
def test_no_gate_is_blamed_for_a_power_cut(cause, blamed):
    text = outcome({"outcome": "rolled_back", "cause": cause})
    assert text.startswith("a gate failed; the last") is blamed
    assert text.endswith(f"the last confirmed release was restored and serves: {cause}")
    result = Result("h1", "kimi", "rolled_back", cause=cause)
    assert ("a gate failed" in str(Results("r", "swap", (result,)).error())) is blamed
