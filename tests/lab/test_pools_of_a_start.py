"""Two host pools a rank, through a real journald: the gate `ranks` passes, and fails by name.

The lines are those that the pool classes of the released 0.5.23 print for a GLM-5 of nine layers
with index keys, 200,000 tokens, ratio 2.0 and pages of 64.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from opsctl.onhost.gates import ranks
from opsctl.onhost.journal import Reading
from opsctl.onhost.model import FAIL, PASS
from opsctl.onhost.records import journalctl_argv, parse_export

pytestmark = pytest.mark.lab

LINES = (
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, KV size: 0.87 GB",
    "Memory pool end. avail mem=80.00 GB",
    "Allocating kv hierarchical KV host pool: 400064 tokens, 1.38 GB host memory.",
    "Allocating 0.48 GB host memory for DSA indexer (layout=page_first).",
)
MANIFEST = {
    "engine": {"version": "0.5.23"},
    "flags": {"enable-hierarchical-cache": True},
    "ranks": ["TP0", "TP1"],
    "expect": {
        "kv": {"tokens": 200000, "min": 200000, "max": 200000, "bytes_per_token": 9 * (384 + 132)},
        "host_pools": [
            {"name": "kv", "bytes_per_token": 9 * 384, "ratio": 2.0, "size": None, "page": 64},
            {"name": "indexer", "bytes_per_token": 9 * 132, "like": "kv", "page": 64},
        ],
    },
}  # fmt: skip


def start(lab_host: Any, *, odd: str = "") -> Reading:
    """One start of two ranks; the second prints `odd` in place of its last line."""
    texts = [(rank, line) for line in LINES for rank in ("TP0", "TP1")]
    if odd:
        texts[-1] = ("TP1", odd)
    script = "\n".join(f"[2026-11-01 10:00:00 {rank}] {line}" for rank, line in texts) + "\n"
    unit = f"opsctl-pools-{'odd' if odd else 'even'}.service"
    lab_host.put("/opt/pools.txt", script.encode())
    # It outlives its last line: of a process that is gone journald cannot tell the unit any more.
    shown = "/bin/sh -c 'cat /opt/pools.txt; exec sleep 2'"
    lab_host.sh(f"systemd-run --wait --unit={unit} {shown}; journalctl --sync")
    found = "journalctl -o export --all -n1 _SYSTEMD_UNIT=" + unit
    answer = lab_host.sh(found).stdout
    invocation = next(
        line.partition("=")[2]
        for line in answer.splitlines()
        if line.startswith("_SYSTEMD_INVOCATION_ID=")
    )
    reading = Reading(invocation)
    text = lab_host.sh(shlex.join(journalctl_argv(unit, invocation))).stdout
    for record in parse_export(text.splitlines()):
        reading.feed(record)
    return reading


def test_the_gate_passes_with_both_pools_of_both_ranks(lab_host: Any) -> None:
    check = ranks(MANIFEST, start(lab_host).facts)
    assert check.status == PASS, check.detail
    assert "2 of 2 ranks" in check.detail and "host pools 1.38 GB + 0.48 GB" in check.detail


def test_the_gate_names_the_rank_and_the_pool(lab_host: Any) -> None:
    odd = "Allocating 0.38 GB host memory for DSA indexer (layout=page_first)."
    check = ranks(MANIFEST, start(lab_host, odd=odd).facts)
    assert check.status == FAIL
    assert "TP1 logged 0.38 GB for host pool indexer, expected 0.48 GB" in check.detail
