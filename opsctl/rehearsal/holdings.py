"""Tells the host's stand-in machine what a process holds; it is given back when the process dies.

The engine runs as an unprivileged user in a hardened unit, so a root service on the host owns
/proc/meminfo and the GPUs' figures. A holding lives exactly as long as its connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time

SOCKET = "/run/opsctl-rehearsal/machine.sock"


def card(gpu: int | None, visible: str) -> int | None:
    """The host's number of a GPU that the engine counts. `visible`: CUDA_VISIBLE_DEVICES."""
    numbers = [part.strip() for part in visible.split(",")]
    if gpu is None or gpu >= len(numbers) or not numbers[gpu].isdigit():
        return gpu
    return int(numbers[gpu])


class Holding:
    """Does nothing on a machine that is no rehearsal host: there is nobody to tell."""

    def __init__(self, gpu: int | None, path: str = SOCKET, patience: float = 5.0) -> None:
        self._gpu = card(gpu, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        self._path = path
        self._socket: socket.socket | None = None
        deadline = time.monotonic() + patience
        while self._socket is None:
            try:
                link = socket.socket(socket.AF_UNIX)
                link.connect(path)
                self._socket = link
            except FileNotFoundError:
                return
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.05)

    def hold(self, gpu_mib: int, host_kb: int, at_most_kb: int | None = None) -> None:
        """Replaces what was told before. `host_kb`: memory of its own; `gpu_mib`: on its GPU;
        `at_most_kb`: a stranger on the host leaves no more than this available."""
        if self._socket is None:
            return
        message = {"gpu": self._gpu, "gpu_mib": gpu_mib, "host_kb": host_kb}
        if at_most_kb is not None:
            message["at_most_kb"] = at_most_kb
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")
