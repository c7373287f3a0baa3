"""Runs a command of the host's with a limit that holds whatever the command does.

A tool that asks a sick GPU may sleep in the kernel, where no signal reaches it: subprocess.run
kills it and then waits for it for ever. Here it is left behind.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, Dict, List, Sequence, Tuple

MOST = 1 << 20  # bytes of an answer that are kept

OK, MISSING, HUNG = "ok", "missing", "hung"


def ask(argv: Sequence[str], limit: float, errors: bool = False) -> Dict[str, Any]:
    """{"state": "ok", "missing" (no such program) or "hung", "rc": exit code or None, "out": its
    stdout}; of a hung one, what it said till then. `errors`: stderr too. The locale is C."""
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"},
            start_new_session=True,
        )
    except OSError:
        return {"state": MISSING, "rc": None, "out": ""}
    content, ended = _read(process, limit)
    if not ended:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    text = content[:MOST].decode("utf-8", "replace")
    return {"state": OK if ended else HUNG, "rc": process.poll(), "out": text}


def _read(process: "subprocess.Popen[bytes]", limit: float) -> Tuple[bytes, bool]:
    """What it wrote, and whether it ended by itself within `limit` seconds. Closes the pipe."""
    assert process.stdout is not None
    until, size = time.monotonic() + limit, 0
    parts: List[bytes] = []
    with process.stdout as pipe, selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0 or not ready.select(left):
                return b"".join(parts), False
            part = os.read(pipe.fileno(), 1 << 16)
            if not part:
                break
            if size < MOST:
                parts.append(part)
                size += len(part)
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, until - time.monotonic()))
    return b"".join(parts), process.returncode is not None
