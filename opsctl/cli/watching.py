"""Shows runs as they go: a live picture on a terminal, plain lines off it. All on stderr."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opsctl.cli.console import console, lively, talk
from opsctl.cli.frame import Settings
from opsctl.views.progress import Picture, advance, drawing, tell

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

    def __rich__(self) -> Any:
        with self._lock:
            return drawing(self.runs)

    def _tell(self, before: Picture, after: Picture, event: Mapping[str, Any]) -> None:
        """The picture tells it."""


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
