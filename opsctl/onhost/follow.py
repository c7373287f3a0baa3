"""The events of a run as JSON lines, as they come, until its result."""

from __future__ import annotations

import time

from opsctl.onhost import stream
from opsctl.onhost.files import json_lines
from opsctl.onhost.store import Store

POLL = 0.2


def follow(store: Store, run: str, first: int = 1) -> None:
    """Tell events number `first` and later. Raises Refused if there is no such run.

    Whether the guard lives is not asked: the dead-man sees to it that a result comes.
    """
    store.run_document(run)
    stream.end_with_stdin()
    path = store.run(run) / "events.jsonl"
    offset, rest = 0, b""
    while True:
        if path.exists():
            with path.open("rb") as file:
                file.seek(offset)
                part = file.read()
            offset += len(part)
            whole, _, rest = (rest + part).rpartition(b"\n")
            for event in json_lines(whole):
                if int(event.get("n") or 0) >= first:
                    stream.tell(event)
                if event.get("event") == "result":
                    return
        time.sleep(POLL)
