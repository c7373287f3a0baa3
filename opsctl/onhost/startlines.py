"""How the journal of one start is read: for `logs`, for the facts of a start, and for the gates.

What runs is told by the mark of its invocation: it has one, and its journal may be weeks long. What
has ended is told by time, from systemd's first word about its start on: a process that dies at once
can miss the mark, and its last words are what matters.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Callable, Dict, Iterable, List, Optional, Tuple

from opsctl.onhost import records, systemd
from opsctl.onhost.systemd import UnitState

BACKWARDS = "--reverse"


def of_start(state: UnitState, lines: int = 0) -> List[str]:
    """How to read the current start, or the last one (`lines`: its last ones, 0 is all); if it has
    BACKWARDS, the newest record comes first. Of a unit that systemd tells nothing of, all."""
    return reader(state)(lines)


def reader(state: UnitState) -> Callable[[int], List[str]]:
    """`of_start` for whoever reads one start several times: its beginning is looked up once."""
    begun = None if state.up else last_begun(state.name)

    def argv(lines: int) -> List[str]:
        if begun is not None:
            return by_time(state.name, begun, lines=lines)
        return records.journalctl_argv(state.name, state.invocation, lines=lines)

    return argv


def by_time(unit: str, begun: int, end: int = 0, lines: int = 0) -> List[str]:
    """The unit's records from `begun` to `end` (microseconds; 0: till now), of any invocation."""
    argv = records.journalctl_argv(unit, lines=lines, since=_at(begun))
    argv += [f"--until={_at(end)}"] if end else []
    # Forwards --lines counts from --since on; backwards, from the end.
    return [*argv, BACKWARDS] if lines else argv


def last_begun(unit: str) -> Optional[int]:
    """When the last start began, microseconds; None if the journal does not tell."""
    with suppress(systemd.CallFailed):
        return next((begun for begun, _ in reversed(each(unit))), None)
    return None


def each(unit: str) -> List[Tuple[int, int]]:
    """When each start began, and when the next one did (0: there is none), microseconds. Raises
    CallFailed."""
    argv = ["journalctl", "-o", "json", "--quiet", f"UNIT={unit}", "_PID=1"]
    _, out, _ = systemd.call([*argv, "--output-fields=INVOCATION_ID"], 60)
    begun = starts_in(out.splitlines())
    return list(zip(begun, [*(time - 1 for time in begun[1:]), 0]))


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
