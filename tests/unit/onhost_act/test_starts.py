"""What is known of a start that is over: its first lines and its last, each read once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsctl.onhost import starts
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
