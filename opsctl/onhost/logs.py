"""The journal of a service as JSON lines: control characters harmless, lines bounded."""

from __future__ import annotations

import json
import os
import tempfile
from typing import List

from opsctl.onhost import records, stream, systemd
from opsctl.onhost.store import Store
from opsctl.onhost.systemd import Systemd

LONGEST_RECORD = 1 << 20  # bytes of one record's JSON; bytes come as arrays, five times as long
LONGEST_LINE = 16384  # characters that are shown


def logs(
    store: Store, manager: Systemd, follow: bool = False, lines: int = 0, all_starts: bool = False
) -> None:
    """The last `lines` lines (0: all) of this start; then, with `follow`, what comes, of later
    starts too, until stdin closes."""
    invocation = "" if all_starts else invocation_of(store, manager)
    argv = records.journalctl_argv(store.unit, invocation, lines=lines)
    if not follow:
        _show(argv)
        return
    stream.end_with_stdin()
    with tempfile.TemporaryDirectory(prefix="opsctl-") as folder:
        cursor = os.path.join(folder, "cursor")
        _show([*argv, f"--cursor-file={cursor}"])
        if os.path.exists(cursor):
            _show([*records.journalctl_argv(store.unit, follow=True), f"--cursor-file={cursor}"])
        _show(records.journalctl_argv(store.unit, follow=True, since="now"))


def invocation_of(store: Store, manager: Systemd) -> str:
    """The current start, or the last one of a unit that is not loaded any more; "" if unknown."""
    now = manager.show(store.unit).invocation
    if now:
        return now
    argv = ["journalctl", "-o", "json", "--quiet", "--lines=1", f"--unit={store.unit}"]
    _, out, _ = systemd.call([*argv, "--output-fields=INVOCATION_ID,_SYSTEMD_INVOCATION_ID"], 30)
    for line in out.splitlines():
        fields = json.loads(line)
        return str(fields.get("_SYSTEMD_INVOCATION_ID") or fields.get("INVOCATION_ID") or "")
    return ""


def _show(argv: List[str]) -> None:
    """Records as they come. A record that is too long is cut, and what is left of it skipped."""
    process = stream.child(argv)
    assert process.stdout is not None
    whole = True
    while True:
        line = process.stdout.readline(LONGEST_RECORD)
        if not line:
            break
        complete = line.endswith(b"\n")
        if whole and complete:
            for record in records.parse_export([line.decode("utf-8", "replace")]):
                stream.tell(
                    {
                        "time": record.time,
                        "text": record.text[:LONGEST_LINE],
                        "pid": record.pid,
                        "source": record.source,
                    }
                )
        elif whole:
            stream.tell({"time": 0, "text": "(a record too long to show)", "pid": 0, "source": ""})
        whole = complete
    process.wait()
