"""Which figure of an expectation has changed, in the words of the plan."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.release.diff import quiet_reasons
from opsctl.release.expectations import changed

GIB = 1 << 30
STANDS: dict[str, Any] = {
    "kv": {"tokens": 159277, "min": 159000, "max": 159500, "bytes_per_token": 70272,
           "basis": "computed"},
    "pools": [{"name": "draft", "tokens": 159277, "bytes_per_token": 4096}],
    "host_pools": [{"name": "kv", "bytes": 22_390_000_000, "ratio": 2.0}],
    "host_total": 179_120_000_000,
    "available_after": int(78.6 * GIB),
    "available_least": int(73.8 * GIB),
    "process": {"bytes": 4 * GIB, "basis": "estimated"},
    "start": {"seconds": 700, "least": 600, "most": 900, "cap": 1800},
    "notes": ["one"],
}  # fmt: skip


def with_(**more: Any) -> dict[str, Any]:
    return {**STANDS, **more}


TOLD: list[tuple[Any, Any, str]] = [
    (STANDS, STANDS, ""),
    (None, STANDS, "expectation: there was none before"),
    (STANDS, None, "expectation: there is none any more"),
    (
        STANDS,
        with_(available_after=int(86.7 * GIB)),
        "expectation: RAM left 78.60 GiB → 86.70 GiB",
    ),
    (
        STANDS,
        with_(kv={**STANDS["kv"], "tokens": 160000, "basis": "measured"}),
        "expectation: KV tokens 159,277 → 160,000, KV tokens are computed → measured",
    ),
    (
        STANDS,
        with_(pools=[{"name": "draft", "tokens": 1, "bytes_per_token": 4096}]),
        "expectation: rows of pool draft 159,277 → 1",
    ),
    (
        STANDS,
        with_(host_pools=[{"name": "kv", "bytes": 44_770_000_000, "ratio": 4.0}]),
        "expectation: host pool kv a rank 22.39 GB → 44.77 GB, ratio of host pool kv 2.0 → 4.0",
    ),
    (STANDS, with_(start=None), "expectation: start 700 s → not known, cap of a start 1800 s → "
     "not known, longest start 900 s → not known, shortest start 600 s → not known"),
    (STANDS, with_(override="we know"), "expectation: override none → we know"),
    (STANDS, with_(notes=["other"]), "expectation: its notes"),
    (STANDS, with_(available_after=int(78.6 * GIB) + 1), "expectation: figures by less than is "
     "shown"),
    (
        STANDS,
        with_(available_after=None, host_total=None, process=None, available_least=None),
        "expectation: host pools of all ranks 179.12 GB → not known, RAM left 78.60 GiB → not "
        "known, memory of a process 4.00 GiB → not known, RAM left at worst 73.80 GiB → not known "
        "and 1 more figure",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), TOLD)
def test_the_figure_is_named_with_what_it_was_and_is(old: Any, new: Any, words: str) -> None:
    assert changed(old, new) == words


def test_a_plan_tells_it() -> None:
    rest = {"gates": {}, "memory": {}, "timing": {}}
    told = quiet_reasons({**rest, "expect": STANDS}, {**rest, "expect": None})
    assert told == ["expectation: there is none any more"]
