"""Journal lines, plans, the closing report."""

import json
import re
from pathlib import Path

import pytest

from opsctl.cli.console import plain
from opsctl.errors import Unreachable
from opsctl.views import logs, plan, status, verify
from opsctl.views.plan import Step


def entry(text, pid=1, host="h1"):
    return {"host": host, "time": 1772409908000000, "text": text, "pid": pid, "source": "python"}


LINES = [
    entry("[2026-03-01 23:45:08 TP1] Allocating 44.77 GB host memory", 11),
    entry("Traceback (most recent call last):", 11),
    entry("[2026-03-01 23:45:09 TP3] Allocating 44.77 GB host memory", 13),
    entry("RuntimeError: x", 13),
    entry("[2026-03-01 23:45:10 DP1 TP1] Load weight end.", 15),
    entry("Started sglang-kimi.service", 0),
]


@pytest.mark.parametrize(
    ("rank", "pattern", "kept"),
    [
        ("", "", [0, 1, 2, 3, 4, 5]),
        ("TP1", "", [0, 1, 4]),
        ("tp3", "", [2, 3]),
        ("DP1 TP1", "", [4]),
        ("TP9", "", []),
        ("", r"Alloc\w+", [0, 2]),
        ("TP3", "Runtime", [3]),
    ],
)
def test_which_lines_are_wanted(rank, pattern, kept):
    wanted = logs.keeper(rank, pattern)
    assert [n for n, line in enumerate(LINES) if wanted(line)] == kept


def test_a_bad_pattern_is_an_error_of_its_own():
    with pytest.raises(re.error):
        logs.keeper("", "(")


def test_lines_for_people():
    assert logs.as_text(LINES[0], several=False) == LINES[0]["text"]
    assert logs.as_text(LINES[0], several=True) == "h1 " + LINES[0]["text"]
    own = {**LINES[5], "source": ""}
    assert logs.as_text(own, several=False) == (
        "[2026-03-02T00:05:08Z] systemd: Started sglang-kimi.service"
    )
    assert logs.as_text(entry("[2026-03-01 23:45:08 TP1] a\x1b]0;pwned\x07"), several=False) == (
        "[2026-03-01 23:45:08 TP1] a␛]0;pwned␇"
    )


def test_lines_for_programs():
    assert logs.as_json(LINES[4]) == {
        "host": "h1",
        "time": "2026-03-02T00:05:08Z",
        "rank": "DP1 TP1",
        "pid": 15,
        "source": "python",
        "text": "[2026-03-01 23:45:10 DP1 TP1] Load weight end.",
    }


def test_a_plan_in_words_and_in_json():
    steps = [
        Step(
            "h1",
            "kimi",
            "swap",
            "restart: hicache-ratio 2.0 → 4.0",
            ("--- a", "+x", " y"),
            ("fits",),
        ),
        Step("h2", "kimi", "", "no restart: nothing changed"),
        Step("h3", "kimi", "stop", "asked for"),
        Step("h4", "kimi", "", "is not running"),
    ]
    assert plain(plan.drawing(steps)) == (
        "h1 kimi: restart: hicache-ratio 2.0 → 4.0\n"
        "  --- a\n"
        "  +x\n"
        "   y\n"
        "h2 kimi: no restart: nothing changed\n"
        "h3 kimi: stop: asked for\n"
        "h4 kimi: no change: is not running\n"
    )
    assert plan.document(steps)["changes"] == 2
    assert plan.document(steps)["steps"][0] == {
        "host": "h1",
        "service": "kimi",
        "action": "swap",
        "reason": "restart: hicache-ratio 2.0 → 4.0",
        "blocked": False,
        "diff": ["--- a", "+x", " y"],
        "forecast": ["fits"],
        "from_next_start": [],
    }


def test_the_report_that_closes_a_deployment():
    reference = json.loads((Path(__file__).parent / "collect-reference.json").read_text())
    service = reference["services"][0]
    service["checks"] += [
        {"id": name, "status": "pass", "detail": "good", "evidence": []}
        for name in ("generation", "reasoning", "tools")
    ]
    text = plain(verify.report({"h1": reference, "h2": Unreachable("timed out")}))
    assert text.splitlines() == [
        "h1 kimi",
        "✓  unit        this start is running, no restarts",
        "✓  ranks       8 of 8 ranks as expected",
        "✓  generation  good",
        "✓  reasoning   good",
        "✓  tools       good",
        "GPU KV cache: 159,277 tokens × 8 GPUs (10.42 GiB per GPU)",
        "Host tier: 44.77 GB × 8 = 358 GB pinned; prefix capacity 159,277 → 637,109 tokens, 4.0 ×",
        "RAM: 370 GiB used of 449, 78 GiB available, no swap",
        "Model: kimi-k2.5 generates; reasoning parser and tool calls work",
        "h2: timed out",
    ]


@pytest.mark.parametrize(
    ("parts", "whose"),
    [
        ({"manifest": None}, "not deployed by opsctl"),
        ({"manifest": {"digest": "0", "ranks": [], "gates": {}}}, "not deployed by opsctl"),
        ({"manifest": None, "release": {"edited": True}}, "opsctl's unit was edited by hand"),
    ],
)
def test_a_unit_of_no_release_has_the_figures_of_its_ranks_and_no_more(parts, whose):
    reference = json.loads((Path(__file__).parent / "collect-reference.json").read_text())
    service = reference["services"][0]
    service.update(parts)
    assert verify.closing(reference, service) == [
        f"{whose}: there is no release to compare with",
        "GPU KV cache: 159,277 tokens × 8 GPUs (10.42 GiB per GPU)",
        "Host tier: 44.77 GB × 8 = 358 GB pinned",
        "RAM: 370 GiB used of 449, 78 GiB available, no swap",
    ]
    service["start"] = {}
    assert verify.closing(reference, service) == [f"{whose}: there is no release to compare with"]


def test_a_newer_host_may_tell_more_than_we_know():
    facts = verify.start_facts(
        {"novelty": 1, "ready": True, "ranks": {"TP0": {"rank": "TP0", "x": 2}}}
    )
    assert facts.ready
    assert facts.ranks["TP0"].rank == "TP0"


def test_what_is_the_same_on_many_hosts_is_shown_once():
    diff, fits = ("--- a", "+x"), ("fits", "barely")
    steps = [
        Step("h1", "kimi", "swap", "start: new", diff, fits),
        Step("h2", "kimi", "swap", "start: new", diff, fits),
        Step("h3", "kimi", "swap", "start: new", ("--- a", "+y"), fits),
        Step("h4", "kimi", "swap", "start: new"),
    ]
    assert plain(plan.drawing(steps)) == (
        "h1 kimi: start: new\n"
        "  --- a\n"
        "  +x\n"
        "h2 kimi: start: new\n"
        "  the same as on h1: diff\n"
        "h3 kimi: start: new\n"
        "  --- a\n"
        "  +y\n"
        "h4 kimi: start: new\n"
    )
    assert plan.document(steps)["steps"][1]["diff"] == list(diff)


def test_of_each_start_its_own_last_lines():
    """One long start must not push an earlier, failed one out of sight."""
    from opsctl.cli.logs import last

    failed = [{**entry(f"failed {n}"), "start": 1_000_000} for n in range(5)]
    serving = [{**entry(f"serving {n}"), "start": 9_000_000} for n in range(500)]
    kept = last([*failed, *serving], 2)
    assert [e["text"] for e in kept] == ["failed 3", "failed 4", "serving 498", "serving 499"]
    assert last([entry("a"), entry("b")], 1) == [entry("b")]
    assert logs.head(failed[0]) == "──── h1: start of 1970-01-01T00:00:01Z"
    assert logs.as_json(failed[0])["start"] == "1970-01-01T00:00:01Z"
    assert "start" not in logs.as_json(entry("a"))


def test_what_does_not_run_has_no_figures_of_now_and_its_fault_stands_last():
    reference = json.loads((Path(__file__).parent / "collect-reference.json").read_text())
    service = reference["services"][0]
    service["state"] = "inactive"
    service["checks"] = [{"id": "unit", "status": "fail", "detail": "is inactive", "evidence": []}]
    assert verify.closing(reference, service) == [
        "the unit is inactive: nothing is served, and nothing is pinned",
        "✗ unit: is inactive",
    ]


def test_a_unit_of_ours_that_was_edited_is_not_called_one_of_other_hands():
    reference = json.loads((Path(__file__).parent / "collect-reference.json").read_text())
    service = reference["services"][0]
    service["manifest"] = None
    service["release"] = {"running": "0", "confirmed": "a" * 64, "edited": True}
    assert "edited by hand" in verify.closing(reference, service)[0]
    assert status.release(service) == "edited by hand"
