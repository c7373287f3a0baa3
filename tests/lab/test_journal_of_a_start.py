"""A unit's output through a real journald: what the reader gets back of bars, bytes and ends."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from opsctl.onhost.gates import crashed
from opsctl.onhost.hostfacts import parse_properties
from opsctl.onhost.journal import Reading
from opsctl.onhost.records import journalctl_argv, parse_export

pytestmark = pytest.mark.lab

UNIT = "opsctl-journal.service"
ENGINE = rb"""
import os, sys, time
say = lambda data: (sys.stdout.buffer.write(data), sys.stdout.buffer.flush())
pre = b"[2026-03-01 23:45:08 TP%d] "
say(b"[2026-03-01 23:45:00] server_args=ServerArgs(api_key='CANARY', "
    b"speculative_algorithm=None, pad='" + b"x" * 15000 + b"')\n")
if os.fork() == 0:
    rank = 1
else:
    rank = 0
say(pre % rank + b"Load weight begin. avail mem=94.05 GB\n")
# the bar ends in no newline, so the next line of the same process is glued to it
say(b"\rLoading shards:   0% Completed | 0/9\rLoading shards: 100% Completed | 9/9")
say(pre % rank + b"Load weight end. elapsed=1.00 s, avail mem=21.71 GB, mem usage=72.34 GB.\n")
say(b"\x1b[1;33mcolour\x1b[0m \xff\xfe bytes\n")
say(pre % rank + b"KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB\n")
if rank == 1:
    time.sleep(0.5)
    say(pre % rank + b"Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "x.py", line 1, in f\n'
        b"ValueError: Not enough host memory available. Requesting 64.00 GB but only have "
        b"11.40 GB free. Please reduce the size of the hierarchical cache.\n\n")
    os._exit(1)
os.wait()
say(b"[2026-03-01 23:45:09] Received sigquit from a child process. "
    b"It usually means the child failed.\n")
time.sleep(0.5)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def start(lab_host) -> Iterator[tuple[Reading, list[str], dict[str, str]]]:
    """One start that fails as the engine does, read back by its invocation."""
    lab_host.put("/opt/engine.py", ENGINE)
    lab_host.sh(
        f"systemd-run --unit={UNIT} --property=RemainAfterExit=no /usr/bin/python3 /opt/engine.py"
    )
    invocation = lab_host.sh(f"systemctl show -P InvocationID {UNIT}").stdout.strip()
    lab_host.sh(f"timeout 30 sh -c 'while systemctl is-active -q {UNIT}; do sleep 0.2; done'")
    lab_host.sh("journalctl --sync")
    command = shlex.join(journalctl_argv(UNIT, invocation))
    answer = lab_host.sh(command).stdout
    show = lab_host.sh(f"systemctl show {UNIT}").stdout
    reading, texts = Reading(invocation), []
    for record in parse_export(answer.splitlines()):
        texts.append(record.text)
        reading.feed(record)
    yield reading, texts, parse_properties(show)


def test_both_ranks_are_read_whole(start) -> None:
    reading, _, _ = start
    assert sorted(reading.facts.ranks) == ["TP0", "TP1"]
    for rank in reading.facts.ranks.values():
        assert rank.kv_tokens == 159277
        assert rank.free_after_weights == round(21.71 * 2**30)  # glued to the bar


def test_the_cause_comes_first_and_systemds_end_is_there(start) -> None:
    reading, _, show = start
    facts = reading.facts
    assert facts.dead
    assert facts.errors[0].startswith("ValueError: Not enough host memory available")
    assert facts.exit == "code=killed, status=9/KILL, result=signal"
    check = crashed(facts, show)
    assert check is not None and "too little memory for the pools" in check.detail


def test_nothing_harmful_or_secret_comes_back(start) -> None:
    _, texts, _ = start
    text = "\n".join(texts)
    assert "colour \ufffd\ufffd bytes" in text
    assert "\x1b" not in text and "\r" not in text
    assert "CANARY" not in text
    assert any("server_args=" in line and len(line) > 15000 for line in texts)  # --all
