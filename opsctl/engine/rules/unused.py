"""Flags of a feature that is off. Source: where the engine reads them, 0.5.2 … 0.5.23."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opsctl.engine.changes import ONLY_WITH, is_on
from opsctl.engine.rules.rule import IGNORED, Theme
from opsctl.engine.rules.view import View

THEME = Theme("Flags of a feature that is off")
_READ = {"load-balance-method"}  # in ways of its own, in some releases without replicas too
_MORE = {
    "disable-priority-preemption": ("enable-priority-scheduling",),
    "default-priority-value": ("enable-priority-scheduling",),
}


def _off(start: str, needed: Sequence[str]) -> Callable[[View], list[str]]:
    def judge(v: View) -> list[str]:
        there = [name for name in needed if v.catalogue.canonical(name)]
        if not there or any(is_on(v[name]) for name in there):
            return []
        return [
            name
            for name in sorted(v.facts.flags)
            if name.startswith(start) and name not in needed and _first(name) == start
        ]

    return judge


def _first(name: str) -> str:
    """Of several beginnings of a name, the one that says what it counts with."""
    return next(s for s, needed in _ALL.items() if name.startswith(s) and name not in needed)


_ALL = {s: needed for s, needed in (ONLY_WITH | _MORE).items() if s not in _READ}

for _start, _needed in _ALL.items():
    _either = " or ".join(_needed)
    THEME.rule(
        IGNORED,
        f"unused-{_start.rstrip('-')}",
        f"{_start}*" if _start.endswith("-") else _start,
        f"{_start}… without {_either}" if _start.endswith("-") else f"{_start} without {_either}",
        f"it counts only with {_either}",
    )(_off(_start, _needed))
