"""The journal of a service as JSON lines: control characters harmless, lines bounded."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Tuple

from opsctl.onhost import records, startlines, stream
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import Systemd

LONGEST_RECORD = 1 << 20  # bytes of one record's JSON; bytes come as arrays, five times as long
LONGEST_LINE = 16384  # characters that are shown
MOST_STARTS = 20  # the newest ones; a unit that systemd starts again and again has hundreds
# Quotes of a message are escaped: this is the field, and not somebody's text.
_CURSOR = re.compile(rb'"__CURSOR"\s*:\s*"([^"\\]+)"')
_TOO_LONG = {"time": 0, "text": "(a record too long to show)", "pid": 0, "source": ""}


def logs(
    store: Store, manager: Systemd, follow: bool = False, lines: int = 0, all_starts: bool = False
) -> None:
    """The last `lines` lines (0: all) of this start, or with `all_starts` of each of the newest
    starts; then, with `follow`, what comes, of later starts too, until stdin closes."""
    reads = _each_start(store.unit, lines) if all_starts else []
    reads = reads or [({}, startlines.of_start(manager.show(store.unit), lines))]
    if follow:
        stream.end_with_stdin()
    place = ""
    for mark, argv in reads:
        place = _show(argv, mark)
    if not follow:
        return
    mark, coming = reads[-1][0], records.journalctl_argv(store.unit, follow=True)
    if place:
        _show([*coming, f"--after-cursor={place}"], mark)
    _show([*coming, "--since=now"], mark)


def _each_start(unit: str, lines: int) -> List[Tuple[Dict[str, Any], List[str]]]:
    """For each start what marks its records ("start": microseconds since the epoch), and how to
    read it."""
    return [
        ({"start": begun}, startlines.by_time(unit, begun, end, lines))
        for begun, end in startlines.each(unit)[-MOST_STARTS:]
    ]


def _show(argv: List[str], mark: Dict[str, Any]) -> str:
    """Records as they come, each with `mark`; where the newest of them stands in the journal."""
    backwards, place = startlines.BACKWARDS in argv, ""
    told = _read(argv, mark)
    for cursor, lines in reversed(list(told)) if backwards else told:
        place = cursor or place
        for line in lines:
            stream.tell(line)
    return place


def _read(argv: List[str], mark: Dict[str, Any]) -> Iterator[Tuple[str, List[Dict[str, Any]]]]:
    """The place and the lines of each record. One that is too long is cut, and what is left of it
    skipped."""
    process = stream.child(argv)
    assert process.stdout is not None
    whole = True
    while True:
        line = process.stdout.readline(LONGEST_RECORD)
        if not line:
            break
        complete = line.endswith(b"\n")
        if whole:
            found = _CURSOR.search(line)
            place = found[1].decode("ascii", "replace") if found else ""
            yield place, _lines(line, mark) if complete else [{**_TOO_LONG, **mark}]
        whole = complete
    process.wait()


def _lines(line: bytes, mark: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [
        {
            "time": record.time,
            "text": record.text[:LONGEST_LINE],
            "pid": record.pid,
            "source": record.source,
            **mark,
        }
        for record in records.parse_export([line.decode("utf-8", "replace")])
    ]
