"""The guard's heartbeat, for the dead-man.

A thread beats, so that a long stop is no silence; but it falls silent when the main thread has
given no sign of life for longer than it was allowed: a guard that hangs must be found out.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import Callable, Iterator

QUIET = 180.0  # seconds that the main thread may be silent when nothing longer was allowed
EVERY = 2.0


class Heart:
    """`beat` is called every EVERY seconds while the main thread keeps its promises."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._deadline = time.monotonic() + QUIET
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        with suppress(OSError):
            self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def sign(self) -> None:
        """The main thread lives."""
        self._deadline = max(self._deadline, time.monotonic() + QUIET)

    @contextmanager
    def allow(self, seconds: float) -> Iterator[None]:
        """The main thread may be silent for `seconds` now."""
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = time.monotonic() + QUIET

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """The guard's clock: who sleeps between two looks is alive."""
        self.sign()
        time.sleep(seconds)

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            if time.monotonic() < self._deadline:
                with suppress(OSError):  # a full disk: the dead-man will look for itself
                    self._beat()
