"""Commands that hang, are missing, or leave children behind: the limit holds."""

from __future__ import annotations

import time

from opsctl.onhost.asking import ask


def test_a_command_that_hangs_is_left_behind() -> None:
    began = time.monotonic()
    answer = ask(["sh", "-c", "echo first; sleep 60"], 0.5)
    assert (answer["state"], answer["out"]) == ("hung", "first\n")
    assert time.monotonic() - began < 10


def test_a_child_that_keeps_the_pipe_open_holds_nobody_up() -> None:
    began = time.monotonic()
    assert ask(["sh", "-c", "sleep 60 & echo done"], 0.5)["state"] == "hung"
    assert time.monotonic() - began < 10


def test_the_usual_ends() -> None:
    assert ask(["no-such-command-here"], 1)["state"] == "missing"
    answer = ask(["sh", "-c", "echo out; echo err >&2; exit 18"], 20)
    assert (answer["state"], answer["rc"], answer["out"]) == ("ok", 18, "out\n")
    assert "err" in ask(["sh", "-c", "echo err >&2"], 20, errors=True)["out"]
