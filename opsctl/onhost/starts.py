"""What is known of a start: from its record if it was confirmed, else from the journal."""

from __future__ import annotations

import subprocess
import time
from contextlib import closing
from typing import Any, Dict, Generator, List, Optional

from opsctl.onhost import files, journal, records, startlines
from opsctl.onhost.model import RankFacts, Record, StartFacts
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import UnitState

LONGEST = 3.0  # seconds that reading one start may take
TAIL = 300  # last lines, which tell how a start ended


def recorded(store: Store, invocation: str) -> Optional[Dict[str, Any]]:
    if not invocation:
        return None
    return files.read_json(store.var / "starts" / f"{invocation}.json")


def facts(store: Optional[Store], state: UnitState) -> StartFacts:
    """Facts of the current start. The journal of a service that has served for weeks is long and
    says all that matters in its first lines: it is read to the line "ready", not further."""
    known = recorded(store, state.invocation) if store else None
    if known is not None and state.active == "active":
        return from_json(known)
    reading = journal.Reading(state.invocation)
    if state.invocation:
        argv = startlines.reader(state)
        read = _feed(reading, argv(0), until_ready=True)
        if state.active != "active":
            _feed(reading, argv(TAIL), after=read)
    return reading.facts


def from_json(value: Dict[str, Any]) -> StartFacts:
    """StartFacts from its record; keys of another version are left out."""
    ranks = {
        name: RankFacts(**{k: v for k, v in rank.items() if k in RankFacts.__dataclass_fields__})
        for name, rank in (value.get("ranks") or {}).items()
    }
    known = {k: v for k, v in value.items() if k in StartFacts.__dataclass_fields__}
    return StartFacts(**{**known, "ranks": ranks})


def _feed(
    reading: journal.Reading, argv: "list[str]", until_ready: bool = False, after: int = 0
) -> int:
    """Read records later than `after` (microseconds); answers the time of the last one. A record
    that is read twice would be a second host pool."""
    last = after
    with closing(_records(argv)) as coming:
        backwards = startlines.BACKWARDS in argv
        for several in reversed(list(coming)) if backwards else coming:
            for record in several:
                if record.time > after:
                    reading.feed(record)
                    last = max(last, record.time)
            if until_ready and reading.facts.ready:
                break
    return last


def _records(argv: "list[str]") -> Generator[List[Record], None, None]:
    """What each line of journalctl holds, for LONGEST seconds at most."""
    until = time.monotonic() + LONGEST
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield list(records.parse_export([line.decode("utf-8", "replace")]))
                if time.monotonic() > until:
                    break
        finally:
            process.kill()
