"""One rank's process: plays its steps, holds memory, then serves the parent's requests."""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from opsctl.rehearsal import process
from opsctl.rehearsal.holdings import Holding
from opsctl.rehearsal.ranks import Rank
from opsctl.rehearsal.timeline import Step

SLICE = 0.2  # wall seconds between two looks at how far a step has come
BLOCK = 1 << 16

log = logging.getLogger("sglang.scheduler")


class Reader:
    """Reads the model's files for real, past the page cache, so that read_bytes grows."""

    def __init__(self, model: Path) -> None:
        self._files = sorted(model.glob("*.safetensors"))
        self._next = 0
        self._buffer = mmap.mmap(-1, BLOCK)

    def read(self) -> None:
        if not self._files:
            return
        path = self._files[self._next % len(self._files)]
        self._next += 1
        with contextlib.suppress(OSError):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
            except OSError:  # a file system without direct reads
                fd = os.open(path, os.O_RDONLY)
            try:
                os.readv(fd, [self._buffer])
            finally:
                os.close(fd)


def play(steps: Iterable[Step], rank: Rank, clock: float, model: Path, ready: int) -> None:
    """Play a start; returns when the rank is ready, and does not return if it crashes or hangs."""
    holding, reader = Holding(rank.gpu), Reader(model)
    gpu = host = 0
    for step in steps:
        begun, wall = time.monotonic(), step.seconds * clock
        to_gpu = gpu if step.gpu_mib is None else step.gpu_mib
        to_host = host if step.host_kb is None else step.host_kb
        while (passed := time.monotonic() - begun) < wall:
            share = passed / wall
            holding.hold(int(gpu + (to_gpu - gpu) * share), int(host + (to_host - host) * share))
            if step.loads:
                reader.read()
            time.sleep(min(SLICE, wall - passed))
        if (gpu, host) != (to_gpu, to_host) or step.at_most_kb:
            gpu, host = to_gpu, to_host
            holding.hold(gpu, host, step.at_most_kb)
        if step.line:
            process.say_raw(step.line) if step.raw else log.info(step.line)
        _end(step, ready)
    _KEEP.append(holding)


_KEEP: list[Holding] = []  # a holding ends with its connection: it must outlive play()


def _end(step: Step, ready: int) -> None:
    if step.ends == "ready":
        os.write(ready, b"r")
    elif step.ends == "crash":
        os.kill(os.getppid(), signal.SIGQUIT)
        time.sleep(1)
        os._exit(1)
    elif step.ends == "hang":
        while True:
            signal.pause()


def serve(requests: int, new_wording: bool) -> NoReturn:
    """Rank 0 logs the batches that the parent tells of; the others only stay alive."""
    with os.fdopen(requests, "r") as lines:
        for line in lines:
            log.info(batch_line(json.loads(line), new_wording))
    os._exit(0)


def batch_line(batch: dict[str, Any], new_wording: bool) -> str:
    head = (
        f"Prefill batch, #new-seq: 1, #new-token: {batch['new']}, "
        f"#cached-token: {batch['cached']}, token usage: {batch['usage']:.2f}, "
        f"#running-req: {batch['running']}, #queue-req: 0, "
    )
    if new_wording:
        return f"{head}#pending-token: 0, cpu graph: False, input throughput (token/s): 0.00"
    return f"{head}input throughput (token/s): 0.00, cuda graph: False"
