"""Reading the journal of one start, again and again, each line once."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import List

from opsctl.onhost import records, startlines, systemd
from opsctl.onhost.model import Record


class Tail:
    """New records of one invocation at each `read`. journald's own cursor file keeps the place."""

    def __init__(self, unit: str, invocation: str, since: str = "") -> None:
        self._argv = records.journalctl_argv(unit, invocation, since=since)
        descriptor, self._cursor = tempfile.mkstemp(prefix="opsctl-cursor-")
        os.close(descriptor)
        os.unlink(self._cursor)  # journalctl refuses an empty one

    def read(self, settle: bool = False) -> List[Record]:
        """`settle`: first let journald write down what it has received. Raises CallFailed."""
        if settle:
            with suppress(systemd.CallFailed):
                systemd.call(["journalctl", "--sync"], 20)
        _, out, _ = systemd.call([*self._argv, f"--cursor-file={self._cursor}"], 60)
        return list(records.parse_export(out.splitlines()))

    def close(self) -> None:
        with suppress(OSError):
            os.unlink(self._cursor)


def unmarked(unit: str, since: int) -> List[Record]:
    """The unit's own records from `since` (microseconds) on, whatever invocation they name."""
    with suppress(systemd.CallFailed):
        _, out, _ = systemd.call(startlines.by_time(unit, since), 20)
        return [record for record in records.parse_export(out.splitlines()) if record.source]
    return []


def last_lines(unit: str, count: int) -> List[str]:
    """The unit's last lines of whichever start: a process that dies at once can miss its
    invocation's mark."""
    argv = records.journalctl_argv(unit, lines=count)
    with suppress(systemd.CallFailed):
        _, out, _ = systemd.call(argv, 20)
        return [record.text for record in records.parse_export(out.splitlines())][-count:]
    return []
