"""This machine as a host obeys the same protocol."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from opsctl.remote import connect
from opsctl.remote.host import CommandFailed, Silent
from opsctl.remote.target import resolve

HOST = connect(resolve("me", {"ansible_connection": "local"}))


def test_run() -> None:
    answer = HOST.run(
        ["sh", "-c", "cat; printf '\\033[2J'; echo e >&2; exit 3"], stdin=b"in", sudo=False
    )
    assert (answer.rc, answer.out, answer.err) == (3, "in␛[2J", "e\n")
    with pytest.raises(Silent):
        HOST.run(["sleep", "5"], timeout=0.2, sudo=False)


def test_stream() -> None:
    assert list(HOST.stream(["sh", "-c", "echo a; echo b"], idle=5, sudo=False)) == ["a", "b"]
    assert list(HOST.stream(["head", "-n1"], stdin=b"x\n", idle=5, sudo=False)) == ["x"]
    with pytest.raises(CommandFailed, match="ended with 4"):
        list(HOST.stream(["sh", "-c", "exit 4"], idle=5, sudo=False))


def test_closing_a_stream_ends_its_process(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    lines = HOST.stream(["sh", "-c", f"echo $$ >{file}; echo x; exec sleep 60"], idle=5, sudo=False)
    assert next(lines) == "x"
    lines.close()  # type: ignore[attr-defined]
    pid = int(file.read_text())
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the process is still there")
