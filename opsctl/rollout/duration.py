"""How long an action keeps its service from serving: drain, stop, start by phase, gates. Pure.

Seconds, each a Figure with its band. What no start has measured is estimated, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from opsctl.forecast import start
from opsctl.forecast.values import ESTIMATED, Figure
from opsctl.release.unit import STOP_MARGIN

# Ranks that end give their pools back; hundreds of GB take seconds. A judgement; systemd kills what
# is still there STOP_MARGIN seconds after the drain.
LEAVING = 10
ANSWER = 10  # a gate's answer of up to gates.max_tokens tokens. A judgement.


def takes(
    new: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    active: bool,
    phases: Mapping[str, Figure],
) -> dict[str, Figure | None]:
    """By step: drain, stop, start, gates, soak. `old`, `new`: manifests; `active`: whether the old
    one serves; `phases`: of the start. The start is None where it is not known."""
    found: dict[str, Figure | None] = {}
    if active:
        drain = math.ceil(float(((old or new).get("timing") or {}).get("drain") or 0))
        words = "as long as requests last, at most timing.drain"
        found["drain"] = Figure(drain, 0, drain, ESTIMATED, words)
        words = "until the processes have given their memory back"
        found["stop"] = Figure(LEAVING, 1, STOP_MARGIN, ESTIMATED, words)
    found["start"] = start.total(phases)
    found["gates"] = _gates(new["gates"])
    return found


def _gates(gates: Mapping[str, Any]) -> Figure:
    health = math.ceil(float(gates["poll"]) * int(gates["health_in_row"]))
    asked = sum(bool(gates[name]) for name in ("generation", "reasoning", "tools"))
    soak = math.ceil(float(gates["soak"]))
    most = math.ceil(asked * float(gates["request_timeout"]))
    return Figure(
        health + asked * ANSWER + soak, soak, health + most + soak, ESTIMATED,
        f"health, {asked} answers, {soak} s of soak",
    )  # fmt: skip


def together(figures: Iterable[Figure | None]) -> Figure | None:
    """The sum; None if one of them is not known."""
    parts = list(figures)
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Figure(
        sum(part.value for part in known),
        sum(part.least or 0 for part in known),
        sum(part.most or 0 for part in known),
        ESTIMATED,
        "the sum",
    )
