"""A task's process that is ended says where things stand, on its parent's stderr."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# As Ansible does it: imported first, then a process in a session of its own without a terminal,
# whose handler ends it at once.
PLAY = """
import os, signal, sys, time
from opsctl.ansible.interrupted import telling
child = os.fork()
if child:
    sys.stdin.readline()
    os.kill(child, int(sys.argv[1]))
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    sys.exit(99)
os.setsid()
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: os._exit(1))
with telling(lambda: "h2: now stopped"):
    os.write(1, b"begun\\n")
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_task_says_where_things_stand(number: signal.Signals) -> None:
    command = [sys.executable, "-c", PLAY, str(int(number))]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as play:  # type: ignore[call-overload]
        assert play.stdout.readline() == "begun\n"
        _, errors = play.communicate("go\n", timeout=30)
    assert play.returncode == 99 and errors.strip() == "h2: now stopped"
