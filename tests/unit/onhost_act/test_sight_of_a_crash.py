"""What is quoted of a start that ended before journald knew whose its lines were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.onhost import gating
from opsctl.onhost.model import Record
from opsctl.onhost.systemd import UnitState

EXIT = "sglang-kimi.service: Main process exited, code=exited, status=1/FAILURE"
DIED = "ModuleNotFoundError: No module named 'sglang'"


def sight(monkeypatch: pytest.MonkeyPatch, marked: list[Record], others: list[Record]) -> Any:
    """A Sight of a failed start whose own journal holds `marked`, and whose unit's `others`."""
    unit = "sglang-kimi.service"
    shown = {"ActiveState": "failed", "Result": "exit-code"}
    failed = UnitState(name=unit, active="failed", invocation="i1", properties=shown)
    store = SimpleNamespace(unit=unit, starts=list)
    manager = SimpleNamespace(show=lambda unit: failed)
    tail = SimpleNamespace(read=lambda settle=False: [marked.pop(0)] if marked else [])
    monkeypatch.setattr(gating, "Tail", lambda *a, **k: tail)
    monkeypatch.setattr(
        gating, "unmarked", lambda unit, since: [r for r in others if r.time >= since]
    )
    monkeypatch.setattr(gating, "last_lines", lambda *a: pytest.fail("there were better lines"))
    monkeypatch.setattr(gating.startrecord, "begun", lambda *a: {})
    found = gating.Sight(store, manager, SimpleNamespace())  # type: ignore[arg-type]
    found.begin({}, "")
    return found


def test_lines_that_missed_their_mark_are_found_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = Record(5, "RuntimeError: of the start before", 7, "python3")
    mine = Record(12, DIED, 8, "python3")
    look = sight(monkeypatch, [Record(10, EXIT, 1, "")], [earlier, mine]).look()
    assert look.crashed is not None
    assert look.crashed.evidence == [DIED, EXIT] and DIED in look.crashed.detail


def test_a_start_that_has_spoken_is_not_looked_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, strange = Record(11, DIED, 8, "python3"), Record(12, "MemoryError: no", 9, "other")
    look = sight(monkeypatch, [mine, Record(13, EXIT, 1, "")], [strange]).look()
    assert look.crashed is not None and look.crashed.evidence == [DIED, EXIT]
