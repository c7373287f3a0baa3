"""Shows runs as they go: a live picture on a terminal, plain lines off it. All on stderr."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opsctl.cli.console import console, lively, talk
from opsctl.cli.frame import Settings
from opsctl.views.progress import Picture, advance, drawing, tell

if TYPE_CHECKING:
    from rich.console import RenderableType

Runs = dict[tuple[str, str], Picture]


class Watcher:
    """Takes events of many hosts, from their threads."""

    def __init__(self) -> None:
        self.runs: Runs = {}
        self._lock = threading.Lock()

    def see(self, host: str, service: str, event: Mapping[str, Any]) -> None:
        with self._lock:
            before = self.runs.get((host, service)) or Picture(host, service)
            self.runs[host, service] = after = advance(before, event)
            self._tell(before, after, event)

    def _tell(self, before: Picture, after: Picture, event: Mapping[str, Any]) -> None:
        for line in tell(before, after, event):
            talk(line)


class LiveWatcher(Watcher):
    """Draws at rich's pace, not at that of the events."""

    def __init__(self) -> None:
        super().__init__()
        self._came: dict[tuple[str, str], float] = {}

    def __rich__(self) -> RenderableType:
        with self._lock:
            now = time.monotonic()
            return drawing(self.runs, {key: now - at for key, at in self._came.items()})

    def _tell(self, before: Picture, after: Picture, event: Mapping[str, Any]) -> None:
        """The picture tells it."""
        self._came[after.host, after.service] = time.monotonic()


@contextmanager
def watching(settings: Settings) -> Iterator[Watcher]:
    if not lively():
        yield Watcher()
        return
    from rich.live import Live

    watcher = LiveWatcher()
    with Live(
        get_renderable=watcher.__rich__, console=console(settings, error=True), refresh_per_second=4
    ):
        yield watcher
