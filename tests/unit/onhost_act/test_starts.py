"""What is known of a start that is over: its first lines and its last, each read once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opsctl.onhost import startlines, starts
from opsctl.onhost.systemd import UnitState

LINES = [
    "[2026-03-01 23:44:10 TP0] KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB",
    "[2026-03-01 23:45:08 TP0] Allocating 22.39 GB host memory for hierarchical KV cache.",
    "[2026-03-01 23:46:00] The server is fired up and ready to roll!",
    "[2026-03-02 01:00:00] SIGTERM received. signum=None frame=None. Draining requests",
]


def test_a_stopped_service_is_not_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        json.dumps({"__REALTIME_TIMESTAMP": str(10 + n), "MESSAGE": line, "_PID": "7"})
        for n, line in enumerate(LINES)
    ]
    journalctl = tmp_path / "journalctl"
    journalctl.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(records) + "\nEND\n")
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    state = UnitState(name="sglang-kimi.service", active="failed", invocation="a" * 32)
    rank = starts.facts(None, state).ranks["TP0"]
    assert rank.kv_tokens == 159277
    assert [pool["bytes"] for pool in rank.host_pools] == [22_390_000_000]


DIED = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
EXIT = "sglang-kimi.service: Main process exited, code=exited, status=1/FAILURE"
# systemd's own words name the start; the engine's missed its mark. What the start before it said
# last is not to be told of this one.
JOURNAL = [
    (100, "Started sglang-kimi.service.", "a"),
    (150, "RuntimeError: CUDA error: an illegal memory access was encountered", ""),
    (200, "Started sglang-kimi.service.", "b"),
    (210, DIED, ""),
    (220, EXIT, "b"),
]
JOURNALCTL = """#!{python}
import json, sys
asked = sys.argv[1:]
since = next((float(a.split("@")[1]) for a in asked if a.startswith("--since")), 0)
marks = [a.split("=")[1] for a in asked if a.startswith("INVOCATION_ID")]
found = [r for r in {records!r} if r[0] >= round(since * 1e6)]
if marks or "_PID=1" in asked:
    found = [r for r in found if r[2] and r[2] in (marks or "ab")]
for time, text, mark in reversed(found) if "--reverse" in asked else found:
    own = dict(INVOCATION_ID=mark, _PID="1") if mark else dict(_PID="7", _COMM="python3")
    print(json.dumps(dict(own, __REALTIME_TIMESTAMP=str(time), MESSAGE=text)))
"""


@pytest.mark.parametrize("sub", ["failed", "auto-restart"])
def test_last_words_that_missed_their_mark_are_facts_of_a_dead_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sub: str
) -> None:
    journalctl = tmp_path / "journalctl"
    journalctl.write_text(JOURNALCTL.format(python=sys.executable, records=JOURNAL))
    journalctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    active = "activating" if sub == "auto-restart" else "failed"
    state = UnitState(name="sglang-kimi.service", active=active, sub=sub, invocation="b")
    assert starts.facts(None, state).errors == [DIED, EXIT]


def test_what_runs_is_told_by_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # the journal of weeks is not searched for its start
    state = UnitState(name="u", active="active", invocation="b")
    assert "INVOCATION_ID=b" in startlines.of_start(state)
