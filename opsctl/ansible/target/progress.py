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
    """What a watcher reads, written every second and never read back: {"state", "bytes", "of"
    (null: not known), "files", "of_files", "rate", "notes" (the last of `noted`), "fault" (that
    is waited for: "" when bytes come), and of an end "message", "hint", "again"}."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._now: Dict[str, Any] = {"state": "listing", "bytes": 0, "of": None, "files": 0}
        self._now.update({"of_files": None, "rate": 0.0, "notes": [], "noted": 0, "fault": ""})
        self._now.update({"message": "", "hint": "", "again": True})
        self._begun, self._new = time.monotonic(), 0

    def set(self, **more: Any) -> None:
        with self._lock:
            self._now.update(more)
        self.write()

    def note(self, text: str) -> None:
        print(text, flush=True)
        with self._lock:
            self._now["notes"] = [*self._now["notes"], text][-50:]
            self._now["noted"] += 1

    def fault(self, text: str) -> None:
        """A note of what is tried again after a while."""
        self.note(text)
        with self._lock:
            self._now["fault"] = text

    def found(self, size: int) -> None:
        """Bytes that an earlier run has brought."""
        with self._lock:
            self._now["bytes"] += size

    def counted(self, size: int) -> None:
        """Bytes that came now; fewer than none where a file begins anew."""
        with self._lock:
            self._now["bytes"] += size
            self._new += max(size, 0)
            if size > 0:
                self._now["fault"] = ""

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
