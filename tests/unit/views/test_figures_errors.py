"""Units, spans, errors in words, control characters."""

import pytest

from opsctl.errors import GateFailed, OpsctlError, Problem, SpecError
from opsctl.views import errors, figures


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_spans(seconds, text):
    assert figures.span(seconds) == text


def test_memory_in_the_unit_that_its_tools_use():
    assert figures.gib(84396106752) == "78.60 GiB"
    assert figures.gb(44770000000) == "44.77 GB"
    assert figures.gb(655360) == "0.66 MB"
    assert figures.gib(None) == figures.gb(None) == figures.count(None) == "–"
    assert figures.count(159277) == "159,277"


def test_a_message_in_a_table_is_one_line_and_bounded():
    assert figures.brief("a\n  b") == "a b"
    assert figures.brief("x" * 500) == "x" * 159 + "…"


def test_times_are_utc():
    assert figures.utc(1772409908) == "2026-03-02 00:05:08Z"
    assert figures.utc(None) == figures.utc(0) == "–"


def test_an_error_says_where_why_and_what_next():
    error = GateFailed(
        "kimi: failed",
        host="h1",
        step="gate ranks",
        log=["RuntimeError: \x1b[31mred\x07", "second"],
        hint="opsctl logs kimi --host h1",
    )
    assert errors.lines(error) == [
        "error: h1, gate ranks: kimi: failed",
        "  │ RuntimeError: ␛[31mred␇",
        "  │ second",
        "next: opsctl logs kimi --host h1",
    ]


def test_all_problems_of_a_description_are_told():
    error = SpecError(
        [
            Problem("unknown key", file="a.yml", service="kimi", key="portt", hint="port?"),
            Problem("is needed", host="h2", key="model"),
        ]
    )
    assert errors.lines(error) == [
        "error: file a.yml, service kimi, key portt: unknown key; port?",
        "error: host h2, key model: is needed",
        "2 problems found.",
    ]


def test_a_message_of_several_lines_keeps_them():
    assert errors.lines(OpsctlError("two hosts\nh1: a\nh2: b")) == [
        "error: two hosts",
        "  h1: a",
        "  h2: b",
    ]


def test_a_fault_of_ours_is_one_line():
    text = errors.unexpected(KeyError("x\ny"))
    assert "\n" not in text
    assert text.startswith("error: KeyError: ")
    assert "--debug" in text


def test_an_error_folds_at_a_terminals_width_and_says_nothing_twice():
    log = ["torch.OutOfMemoryError: CUDA out of memory", "x.service: Main process exited"]
    error = GateFailed(
        "kimi on h1: a gate failed: " + "unit: the engine ended: " + log[0] + " and so on" * 9,
        host="h1", step="kimi", log=log, hint="opsctl logs kimi --host h1 --all-starts",
    )  # fmt: skip
    said = errors.lines(error)
    assert said[0].startswith("error: kimi on h1: a gate failed")
    assert said[1:] == [f"  │ {log[1]}", "next: opsctl logs kimi --host h1 --all-starts"]
    narrow = errors.folded(said, 60)
    assert all(len(line) <= 60 for line in narrow) and narrow[1].startswith("  ")
    assert "".join(narrow).replace(" ", "") == "".join(said).replace(" ", "")
    assert errors.folded(said, 0) == said
