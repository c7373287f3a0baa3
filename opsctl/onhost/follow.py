"""The events of a run as JSON lines, as they come, until its result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from opsctl.onhost import locks, stream
from opsctl.onhost.files import json_lines
from opsctl.onhost.launch import watch_of
from opsctl.onhost.store import Store

POLL = 0.2
PATIENCE = 60.0  # seconds beyond what the dead-man may take, and between two words about it
LATE = 5.0  # seconds that the result's own event may come after the result


def follow(store: Store, run: str, first: int = 1) -> None:
    """Tell events number `first` and later. Raises Refused if there is no such run.

    The dead-man sees to it that a result comes. Where even that fails (a disk that is full), the
    silence is told as a note; and a result that no event tells of (the same) as that event.
    """
    stale = float(watch_of(store.run_document(run))["stale"])
    stream.end_with_stdin()
    lines, number = Lines(store.run(run) / "events.jsonl"), 0
    ended: Optional[float] = None
    quiet = Quiet(3 * stale + PATIENCE)
    while True:
        for event in lines.more():
            number = int(event.get("n") or 0)
            if number >= first:
                stream.tell(event)
            if event.get("event") == "result":
                return
        result = store.result(run)
        if result is not None:
            ended = time.monotonic() if ended is None else ended
            if time.monotonic() - ended > LATE:
                stream.tell({"n": number + 1, "time": time.time(), "event": "result", **result})
                return
        elif quiet.noticed(time.monotonic(), store.heartbeat_age(run)):
            guard = locks.guard_unit(store.service)
            text = f"no sign of the guard, and the dead-man has not ended the run: see {guard}"
            stream.tell({"n": number, "time": time.time(), "event": "note", "text": text})
        time.sleep(POLL)


class Lines:
    """The whole JSON lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def more(self) -> List[Dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            part = file.read()
        self._offset += len(part)
        whole, _, self._rest = (self._rest + part).rpartition(b"\n")
        return json_lines(whole)


class Quiet:
    """Whether a guard has been silent for too long. Pure: times come in, in seconds.

    The silence must have been watched, too: after a boot the age is infinite until the guard has
    been started again.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: Optional[float] = None

    def noticed(self, now: float, age: float) -> bool:
        """True once for each PATIENCE of a silence."""
        if age < self._patience:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        if now - self._since < PATIENCE:
            return False
        self._since = now
        return True
