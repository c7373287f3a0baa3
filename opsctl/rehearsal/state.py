"""What the server's requests share: how it is, what runs, what was counted."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsctl.rehearsal import answers, metrics
from opsctl.rehearsal.answers import Serving

STARTING, UP, UNHEALTHY = "starting", "up", "unhealthy"


@dataclass
class State:
    """`alive`: whether every rank still runs; `tell`: to rank 0's log."""

    serving: Serving
    gpu: Mapping[str, Any]
    pace: float  # wall seconds a token
    look: float  # wall seconds of the engine's one-second look in /health
    patience: float  # wall seconds until /health gives up
    alive: Callable[[], bool]
    tell: Callable[[dict[str, Any]], None]
    created: int = field(default_factory=lambda: int(time.time()))
    status: str = STARTING
    stopping: bool = False
    running: dict[str, float] = field(default_factory=dict)
    counts: metrics.Counts = field(default_factory=metrics.Counts)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, prompt_tokens: int) -> str:
        rid = uuid.uuid4().hex
        with self.lock:
            self.running[rid] = time.monotonic()
            running = len(self.running)
        self.tell({"new": prompt_tokens, "cached": 0, "usage": 0.0, "running": running - 1})
        return rid

    def end(self, rid: str, answer: answers.Reply) -> None:
        with self.lock:
            self.counts.add(answer, time.monotonic() - self.running.pop(rid))

    def drop(self, rid: str) -> None:
        with self.lock:
            self.running.pop(rid, None)

    @property
    def answers_nothing(self) -> bool:
        return self.serving.fault == "health-200-but-generation-hangs" and self.status == UP
