"""Journal lines for people and programs, and which of them are wanted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from opsctl.onhost.wording import parse_prefix
from opsctl.remote.sanitise import text as harmless

LONGEST = 400  # characters of a line, where the ends of many starts are shown


def keeper(rank: str, pattern: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a line is of `rank` and matches `pattern` ("" means any). Raises re.error.

    A traceback's lines carry no rank: they belong to the line before them of the same process.
    """
    regex = re.compile(pattern)
    parts = set(rank.upper().split())
    of_process: dict[tuple[str, int], str] = {}

    def wanted(entry: Mapping[str, Any]) -> bool:
        key = (str(entry.get("host", "")), int(entry.get("pid") or 0))
        own = rank_of(entry) or of_process.get(key, "")
        of_process[key] = own
        if not parts <= set(own.split()):
            return False
        return regex.search(str(entry["text"])) is not None

    return wanted


def rank_of(entry: Mapping[str, Any]) -> str:
    return parse_prefix(str(entry["text"])).rank


def as_text(entry: Mapping[str, Any], *, several: bool) -> str:
    """The engine's own lines as they are; systemd's with time and source, which they lack. Of many
    starts the longest lines are cut, and say so."""
    text = harmless(str(entry["text"]))
    if "start" in entry and len(text) > LONGEST:  # arguments are printed in every start
        text = f"{text[:LONGEST]}… ({len(text):,} characters)"
    if not parse_prefix(str(entry["text"])).prefixed:
        source = entry.get("source") or "systemd"
        text = f"[{_stamp(entry)}] {source}: {text}"
    return f"{entry['host']} {text}" if several else text


def head(entry: Mapping[str, Any]) -> str:
    """What stands above the lines of one start of many."""
    return f"──── {entry['host']}: start of {_iso(entry['start'])}"


def as_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "host": entry["host"],
        "time": _stamp(entry),
        "rank": rank_of(entry),
        "pid": int(entry.get("pid") or 0),
        "source": entry.get("source") or "",
        "text": entry["text"],
        **({"start": _iso(entry["start"])} if "start" in entry else {}),
    }


def _stamp(entry: Mapping[str, Any]) -> str:
    return _iso(entry["time"])


def _iso(microseconds: int) -> str:
    """Microseconds since the epoch as UTC."""
    at = datetime.fromtimestamp(int(microseconds) / 1e6, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
