"""`opsctl history`: one line for what was done, the newest last, of all hosts in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.remote.sanitise import text as harmless
from opsctl.views.figures import NONE, short, span
from opsctl.views.fold import Listing

COLUMNS = ("TIME", "HOST", "SERVICE", "WHAT", "RESULT", "RELEASE", "AFTER", "BY", "WHY")
_BAD = ("failed", "rolled back")

Entry = Mapping[str, Any]
Said = Mapping[str, Sequence[Entry] | OpsctlError]


def table(said: Said) -> Listing:
    rows = [_row(entry) for entry in _entries(said)]
    return Listing(COLUMNS, rows, head=6, style=_style, nothing=NONE)


def document(said: Said) -> dict[str, Any]:
    """`ok`: every host answered."""
    answered = not any(isinstance(answer, OpsctlError) for answer in said.values())
    return {"schema_version": 1, "ok": answered, "entries": [dict(e) for e in _entries(said)]}


def _entries(said: Said) -> list[Entry]:
    found = [
        {"host": host, **entry}
        for host, answer in said.items()
        if not isinstance(answer, OpsctlError)
        for entry in answer
    ]
    return sorted(found, key=lambda entry: float(entry.get("time") or 0))


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        _when(entry),
        str(entry["host"]),
        str(entry["service"]),
        harmless(str(entry.get("op") or NONE)),
        harmless(str(entry.get("outcome") or NONE)).replace("_", " "),
        short(entry.get("release")),
        span(entry["seconds"]) if entry.get("seconds") else NONE,
        harmless(str(entry.get("owner") or NONE)),
        _why(entry),
    )


def _when(entry: Entry) -> str:
    when = datetime.fromtimestamp(float(entry.get("time") or 0), UTC)
    return when.strftime("%Y-%m-%d %H:%M:%SZ")


def _why(entry: Entry) -> str:
    """The reason that was given, what failed, and why."""
    failed = f"release {short(entry['failed'])} failed" if entry.get("failed") else ""
    parts = (str(entry.get("reason") or ""), failed, str(entry.get("cause") or ""))
    return "; ".join(harmless(part) for part in parts if part) or NONE


def _style(cell: str) -> str:
    return "red" if cell in _BAD else ""
