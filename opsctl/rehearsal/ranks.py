"""The ranks of a command line: their number, label, log prefix and GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.engine.ranks import ranks as labels


@dataclass(frozen=True)
class Rank:
    """`prefix`: what stands between the time and the `]` in its log lines; empty if it is alone."""

    number: int
    label: str
    prefix: str
    gpu: int


def ranks(flags: Mapping[str, Any]) -> list[Rank]:
    """One rank a scheduler process, in the engine's order of launch.

    Raises ValueError for sizes that do not divide.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    tp, ep = int(given.get("tp-size", 1)), int(given.get("ep-size", 1))
    first, found = int(given.get("base-gpu-id", 0)), labels(given)
    alone = len(found) == 1
    return [
        Rank(
            number,
            label,
            ("" if alone else f" {label}") + (f" EP{number % tp * ep // tp}" if ep > 1 else ""),
            first + number,
        )
        for number, label in enumerate(found)
    ]
