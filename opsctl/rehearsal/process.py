"""Small things that the engine does to its own processes, without its libraries."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def rename(title: str) -> None:
    """Give this process the engine's own process title, as `ps` and the kernel show it.

    The kernel keeps 15 characters; the command line is written over in place, as setproctitle does.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end (48th and 49th of proc(5))
    if end > start:
        data = title.encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, data, len(data))


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def log_as(prefix: str) -> None:
    """Log lines as the engine's: the time, then the rank's prefix, then the message."""
    millis = ".%(msecs)03d" if os.environ.get("SGLANG_LOG_MS") else ""
    logging.basicConfig(
        level=logging.INFO,
        format=f"[%(asctime)s{millis}{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        stream=sys.stderr,
        force=True,
    )


def say_raw(text: str) -> None:
    """Past the log, as a progress bar is drawn."""
    os.write(2, text.encode())
