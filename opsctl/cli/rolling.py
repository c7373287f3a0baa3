"""restart, start, rollback: show the plan, ask, and let the rollout engine do it host by host."""

from __future__ import annotations

from collections.abc import Sequence

from opsctl.cli.frame import Change, Settings


def roll(op: str, services: Sequence[str] | None, settings: Settings, change: Change) -> None:
    raise NotImplementedError
