"""How far a fetch is, for those who watch it: a file that is written every second."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator


class Progress:
    """What a watcher reads: {"state", "bytes", "of", "files", "of_files", "rate", "notes",
    "message"}; written every second, never read back."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._now: Dict[str, Any] = {"state": "listing", "bytes": 0, "of": None, "files": 0}
        self._now.update({"of_files": None, "rate": 0.0, "notes": [], "message": ""})
        self._begun, self._new = time.monotonic(), 0

    def set(self, **more: Any) -> None:
        with self._lock:
            self._now.update(more)
        self.write()

    def note(self, text: str) -> None:
        print(text, flush=True)
        with self._lock:
            self._now["notes"] = [*self._now["notes"], text][-50:]

    def found(self, size: int) -> None:
        """Bytes that an earlier run has brought."""
        with self._lock:
            self._now["bytes"] += size

    def counted(self, size: int) -> None:
        """Bytes that came now; fewer than none where a file begins anew."""
        with self._lock:
            self._now["bytes"] += size
            self._new += max(size, 0)

    def done(self) -> None:
        with self._lock:
            self._now["files"] += 1

    def write(self) -> None:
        with self._lock:
            self._now["rate"] = self._new / max(time.monotonic() - self._begun, 0.001)
            text = json.dumps(self._now)
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.write_text(text, encoding="utf-8")
        os.replace(str(temporary), str(self._path))

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        stop = threading.Event()

        def every_second() -> None:
            while not stop.wait(1.0):
                self.write()

        thread = threading.Thread(target=every_second, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.write()
