"""The journal of a service as JSON lines: control characters harmless, lines bounded."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from opsctl.onhost import records, stream, systemd
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import Systemd, UnitState

LONGEST_RECORD = 1 << 20  # bytes of one record's JSON; bytes come as arrays, five times as long
LONGEST_LINE = 16384  # characters that are shown
BACKWARDS = "--reverse"
MOST_STARTS = 20  # the newest ones; a unit that systemd starts again and again has hundreds


def logs(
    store: Store, manager: Systemd, follow: bool = False, lines: int = 0, all_starts: bool = False
) -> None:
    """The last `lines` lines (0: all) of this start, or with `all_starts` of each of the newest
    starts; then, with `follow`, what comes, of later starts too, until stdin closes."""
    reads = _each_start(store.unit, lines) if all_starts else []
    state = manager.show(store.unit)
    if not (all_starts or follow or state.up):
        # What died at once can have left its last words without the mark of its invocation.
        reads = [({}, argv) for _, argv in _each_start(store.unit, lines)[-1:]]
    if follow or not reads:  # the cursor that is followed stands after the last line that was read
        current = _invocation(state) if reads or not all_starts else ""
        mark = reads[-1][0] if reads else {}
        reads = [*reads[:-1], (mark, records.journalctl_argv(store.unit, current, lines=lines))]
    mark, argv = reads.pop()
    for earlier in reads:
        _show(earlier[1], earlier[0])
    if not follow:
        _show(argv, mark)
        return
    stream.end_with_stdin()
    coming = records.journalctl_argv(store.unit, follow=True)
    with tempfile.TemporaryDirectory(prefix="opsctl-") as folder:
        cursor = os.path.join(folder, "cursor")
        _show([*argv, f"--cursor-file={cursor}"], mark)
        if os.path.exists(cursor):
            _show([*coming, f"--cursor-file={cursor}"], mark)
        _show([*coming, "--since=now"], mark)


def _each_start(unit: str, lines: int) -> List[Tuple[Dict[str, Any], List[str]]]:
    """For each start what marks its records ("start": microseconds since the epoch), and how to
    read it. Between two starts the time decides, not the invocation: a process that dies at once
    can miss its mark."""
    argv = ["journalctl", "-o", "json", "--quiet", f"UNIT={unit}", "_PID=1"]
    _, out, _ = systemd.call([*argv, "--output-fields=INVOCATION_ID"], 60)
    begun = starts_in(out.splitlines())
    ends = [*(time - 1 for time in begun[1:]), 0]
    found = []
    for time, end in list(zip(begun, ends))[-MOST_STARTS:]:
        read = records.journalctl_argv(unit, lines=lines, since=_at(time))
        read += [f"--until={_at(end)}"] if end else []
        # Forwards --lines counts from --since on; backwards, from the end.
        found.append(({"start": time}, [*read, BACKWARDS] if lines else read))
    return found


def starts_in(text_lines: Iterable[str]) -> List[int]:
    """When each start began, from the invocations that systemd's own records name. Pure."""
    seen: Dict[str, int] = {}
    for line in text_lines:
        fields = json.loads(line)
        if fields.get("INVOCATION_ID"):
            seen.setdefault(str(fields["INVOCATION_ID"]), int(fields["__REALTIME_TIMESTAMP"]))
    return sorted(seen.values())


def _at(microseconds: int) -> str:
    return f"@{microseconds // 1000000}.{microseconds % 1000000:06d}"


def _invocation(state: UnitState) -> str:
    """The current start, or the last one of a unit that is not loaded any more; "" if unknown."""
    if state.invocation:
        return state.invocation
    argv = ["journalctl", "-o", "json", "--quiet", "--lines=1", f"--unit={state.name}"]
    _, out, _ = systemd.call([*argv, "--output-fields=INVOCATION_ID,_SYSTEMD_INVOCATION_ID"], 30)
    for line in out.splitlines():
        fields = json.loads(line)
        return str(fields.get("_SYSTEMD_INVOCATION_ID") or fields.get("INVOCATION_ID") or "")
    return ""


def _show(argv: List[str], mark: Dict[str, Any]) -> None:
    """Records as they come, each with `mark`."""
    told = _read(argv, mark)
    for lines in reversed(list(told)) if BACKWARDS in argv else told:
        for line in lines:
            stream.tell(line)


def _read(argv: List[str], mark: Dict[str, Any]) -> Iterator[List[Dict[str, Any]]]:
    """The lines of each record. One that is too long is cut, and what is left of it skipped."""
    process = stream.child(argv)
    assert process.stdout is not None
    whole = True
    while True:
        line = process.stdout.readline(LONGEST_RECORD)
        if not line:
            break
        complete = line.endswith(b"\n")
        if whole and complete:
            yield [
                {
                    "time": record.time,
                    "text": record.text[:LONGEST_LINE],
                    "pid": record.pid,
                    "source": record.source,
                    **mark,
                }
                for record in records.parse_export([line.decode("utf-8", "replace")])
            ]
        elif whole:
            text = "(a record too long to show)"
            yield [{"time": 0, "text": text, "pid": 0, "source": "", **mark}]
        whole = complete
    process.wait()
