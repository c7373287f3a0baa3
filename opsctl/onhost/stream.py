"""Output that flows until somebody closes the connection.

A closed SSH channel leaves a remote process running; but it closes that process's stdin. A thread
waits for that and ends everything at once, even while the main thread is stuck in a write.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from typing import Any, List

_children: "List[subprocess.Popen[bytes]]" = []


def end_with_stdin() -> None:
    """From now on the process ends, with its children, when stdin closes."""
    threading.Thread(target=_watch, daemon=True).start()


def child(argv: List[str]) -> "subprocess.Popen[bytes]":
    """A process whose stdout is read here, and that never outlives this one."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    _children.append(process)
    return process


def tell(value: Any) -> None:
    """One JSON line, at once. A reader that is gone ends the process."""
    line = json.dumps(value, ensure_ascii=True).encode() + b"\n"
    try:
        while line:
            line = line[os.write(1, line) :]
    except OSError:
        leave()


def leave() -> None:
    for process in _children:
        with contextlib.suppress(OSError):
            process.kill()
    os._exit(0)


def _watch() -> None:
    try:
        while os.read(0, 65536):
            pass
    except OSError:
        pass
    leave()
