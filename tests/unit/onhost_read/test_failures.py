"""Decisive lines of failed starts from public reports: which line is the cause."""

import json
from pathlib import Path

import pytest

from opsctl.onhost.causes import CAUSES, EXCEPTION, classify
from opsctl.onhost.decisive import MOST
from opsctl.onhost.gates import crashed
from opsctl.onhost.journal import Reading
from opsctl.onhost.model import Record, StartFacts
from opsctl.onhost.records import split
from opsctl.onhost.wording import parse_prefix

# Each row: a report's lines, the cause that they show ("" where they show none: hangs, prose, or
# an effect that no log names), and whether the start is surely over.
# Causes that the reports only infer were checked against the engine's source or left as what the
# line itself says: a wrapped exception is "exception", whatever its reason may be.
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "failures.jsonl").read_text("utf-8").splitlines()
]
TP = "[2026-03-01 23:45:08 TP{}] "


def read(text: str, source: str = "", pid: int = 0) -> StartFacts:
    reading = Reading("inv")
    for number, line in enumerate(text.split("\n")):
        for part in split(line):
            reading.feed(Record(number, part, pid, source))
    return reading.facts


def cause_of(facts: StartFacts) -> str:
    if not facts.errors:
        return ""
    found = classify(parse_prefix(facts.errors[0]).rest)
    assert found is not None
    return found.name


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_cause_is_chosen(row: dict) -> None:
    facts = read(row["log"])
    assert cause_of(facts) == row["cause"]
    assert facts.dead is row["dead"]


def test_every_cause_has_words_and_a_name_of_its_own() -> None:
    names = [cause.name for cause in CAUSES]
    assert len(names) == len(set(names))
    assert all(cause.words for cause in [*CAUSES, EXCEPTION])


def test_status_9_kill_alone_is_not_the_oom_killer() -> None:
    facts = read("x.service: Main process exited, code=killed, status=9/KILL")
    assert facts.dead and facts.exit == "code=killed, status=9/KILL"
    check = crashed(facts, {"ActiveState": "failed", "Result": "signal"})
    assert check is not None and "OOM" not in check.detail


def test_systemds_words_become_the_exit() -> None:
    facts = read(
        "x.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED\n"
        "x.service: Failed with result 'exit-code'.\n"
        "x.service: Scheduled restart job, restart counter is at 1."
    )
    assert facts.exit == "code=exited, status=3/NOTIMPLEMENTED, result=exit-code"
    assert facts.restarts == 1


def test_what_the_engine_writes_is_not_taken_for_systemd() -> None:
    assert not read("Main process exited, code=killed, status=9/KILL", source="python").dead


def ranks_fail(interleaved: bool) -> list[Record]:
    """Eight ranks raise at once; TP5 out of memory, the rest because TP5 is gone."""
    blocks = []
    for rank in range(8):
        last = "RuntimeError: NCCL error: remote process exited or there was a network error"
        if rank == 5:
            last = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        blocks.append(
            [
                Record(rank, text, 100 + rank, "python")
                for text in (
                    TP.format(rank)
                    + "Scheduler hit an exception: Traceback (most recent call last):",
                    '  File "scheduler.py", line 1, in run',
                    "    raise ValueError(f'Not enough host memory')",
                    last,
                    "",
                )
            ]
        )
    if interleaved:
        return [record for step in zip(*blocks, strict=True) for record in step]
    return [record for block in blocks for record in block]


@pytest.mark.parametrize("interleaved", [False, True])
def test_one_ranks_cause_beats_the_loss_of_peers(interleaved: bool) -> None:
    reading = Reading()
    found = [event for record in ranks_fail(interleaved) for event in reading.feed(record)]
    assert reading.facts.dead
    assert reading.facts.errors[0].startswith("torch.OutOfMemoryError")
    [culprit] = [event.rank for event in found if event.data["cause"] == "gpu-memory"]
    assert culprit == "TP5"
    assert len(reading.facts.errors) == 3  # the same line of many ranks is told once


def test_source_lines_of_a_traceback_are_no_causes() -> None:
    """The traceback quotes `raise ValueError(f"Not enough host memory…")` on its way."""
    reading = Reading()
    for record in ranks_fail(False)[:4]:
        reading.feed(record)
    assert not any("host memory" in line for line in reading.facts.errors)


def test_a_chain_of_exceptions_keeps_its_root() -> None:
    facts = read(
        "[2026-03-01 23:45:08 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in f\n'
        "KeyError: 'x'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "b.py", line 2, in g\n'
        "Exception: Capture cuda graph failed: 'x'\n"
        "Possible solutions:\n"
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n",
        source="python",
    )
    assert facts.errors[:2] == ["Exception: Capture cuda graph failed: 'x'", "KeyError: 'x'"]


def test_no_more_lines_than_a_person_reads() -> None:
    names = "abcdefghijklmnop"
    facts = read("\n".join(f"{name.upper()}Error: {name}" for name in names), source="python")
    assert len(facts.errors) == MOST


@pytest.mark.parametrize(
    "text",
    [
        "[2026-11-29 17:40:58] libnuma.so: cannot open shared object file: No such file",
        "[2026-11-29 17:40:57] Ignore import error when loading x: Could not load libc10.so: "
        "cannot open shared object file",
        "[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of peer ranks is : 0",
        "[2026-11-29 17:40:32] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
        '[2026-11-29 17:40:32] INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503 Busy',
        "[2026-11-29 17:40:32 TP0] Receive: obj=GenerateReqInput(text='CUDA out of memory')",
    ],
)
def test_normal_lines_tell_of_no_failure(text: str) -> None:
    assert read(text, source="python").errors == []


# -- the engine's own words before systemd's -----------------------------------------------------

EXIT = "sglang-kimi.service: Main process exited, code=exited, status=1/FAILURE"
RESULT = "sglang-kimi.service: Failed with result 'exit-code'."


def ended(*engine: str, systemd: tuple[str, ...] = (EXIT, RESULT)) -> StartFacts:
    reading = Reading("inv")
    for text in engine:
        reading.feed(Record(1, text, 7, "python3"))
    for text in systemd:
        reading.feed(Record(2, text, 1, ""))
    return reading.facts


def test_the_engines_exception_comes_first_and_of_systemd_one_line() -> None:
    facts = ended(
        TP.format(7) + "Scheduler hit an exception: Traceback (most recent call last):",
        '  File "model_runner.py", line 9, in load',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[2026-03-01 23:45:09] Received sigquit from a child process.",
    )
    assert facts.errors[0].startswith("torch.OutOfMemoryError")
    assert facts.errors[-1] == EXIT and RESULT not in facts.errors


def test_words_that_no_row_knows_are_quoted_all_the_same() -> None:
    facts = ended(
        TP.format(0) + "Load weight begin. avail mem=94.05 GB",
        "[2026-03-01 23:45:09] REHEARSAL: scenario reference has no figures for ratio 3",
    )
    assert "no figures for ratio 3" in facts.errors[0] and facts.errors[-1] == EXIT
    check = crashed(facts, {"ActiveState": "failed"})
    assert check is not None and "its last words: [2026-03-01 23:45:09] REHEARSAL" in check.detail


def test_an_engine_that_only_says_farewell_is_quoted_with_what_it_said_before() -> None:
    facts = ended("the disk cache is of another machine", "Received sigquit from a child process.")
    assert facts.errors[:2] == [
        "the disk cache is of another machine", "Received sigquit from a child process.",
    ]  # fmt: skip


def test_a_line_of_the_engine_that_comes_after_systemds_is_not_lost() -> None:
    facts = ended()
    assert facts.errors == [EXIT]
    reading = Reading("inv")
    for record in (Record(1, EXIT, 1, ""), Record(2, "no room for the cache", 7, "python3")):
        reading.feed(record)
    assert reading.facts.errors == ["no room for the cache", EXIT]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("x.service: A process of this unit has been killed by the OOM killer.", "OOM killer"),
        ("x.service: Failed at step EXEC spawning /opt/x: No such file", "could not run"),
    ],
)
def test_a_cause_that_systemd_alone_can_tell_stays_the_first(line: str, cause: str) -> None:
    facts = ended("Load weight begin.", systemd=(line, EXIT, RESULT))
    assert facts.errors == [line]
    check = crashed(facts, {"ActiveState": "failed"})
    assert check is not None and cause in check.detail


def test_an_exception_of_any_name_ends_its_traceback() -> None:
    facts = ended(
        "Traceback (most recent call last):",
        '  File "compile.py", line 3, in f',
        "torch._dynamo.exc.Unsupported: a call of builtin print",
        "Note: a word after it",
    )
    assert facts.errors == ["torch._dynamo.exc.Unsupported: a call of builtin print", EXIT]


def test_a_running_start_has_no_last_words() -> None:
    assert ended("Load weight begin.", systemd=()).errors == []


def test_a_file_of_variables_that_is_gone_is_the_cause() -> None:
    """As systemd 252 tells it."""
    facts = read(
        "a.service: Failed to load environment files: No such file or directory\n"
        "a.service: Failed to run 'start' task: No such file or directory\n"
        "a.service: Failed with result 'resources'."
    )
    check = crashed(facts, {"ActiveState": "failed", "Result": "resources"})
    assert check is not None and cause_of(facts) == "environment-file"
    assert "Failed to load environment files: No such file or directory" in check.detail
    assert "without a word" not in check.detail
