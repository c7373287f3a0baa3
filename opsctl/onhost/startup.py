"""Waiting for a start: on its progress, not on a fixed time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence

from opsctl.onhost.model import FAIL, Check, Event
from opsctl.onhost.progress import Progress, Sample
from opsctl.onhost.systemd import UnitState

TIMING = {"drain": 60.0, "stall": 900.0, "cap": 5400.0}  # seconds, where nobody says
QUIET = 10.0  # seconds between two progress events when nothing changes


@dataclass(frozen=True)
class Look:
    """One look at a starting service."""

    state: UnitState
    crashed: Optional[Check] = None  # the decisive lines, if the start is over
    ready: bool = False
    events: Sequence[Event] = ()  # new since the last look
    samples: Mapping[int, Sample] = field(default_factory=dict)  # of the unit's processes
    gpu_used: int = 0  # bytes over all GPUs
    ranks: Mapping[str, str] = field(default_factory=dict)
    log: List[str] = field(default_factory=list)  # the last lines, for a start that hangs


class Eyes(Protocol):
    """What can be seen of one service. The real one is gating.Sight."""

    def before(self, manifest: Mapping[str, Any]) -> None: ...  # the host, just before a start

    def begin(self, manifest: Mapping[str, Any], before: str) -> None: ...

    def adopt(self) -> None: ...  # the running process, which was not started by this run

    def look(self) -> Look: ...

    def gate(self, name: str) -> Optional[Check]: ...  # None: not asked for by the manifest

    def record(self) -> Dict[str, Any]: ...  # for the forecasts after this start


class Clock(Protocol):
    def now(self) -> float: ...  # seconds since the epoch

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


def timing_of(manifest: Mapping[str, Any]) -> Dict[str, float]:
    """drain, stall and cap of a release. An owner who set no cap gets the forecast's: how long the
    slowest start of this model on this host may take."""
    timing: Dict[str, Any] = {**TIMING, **(manifest.get("timing") or {})}
    start: Mapping[str, Any] = (manifest.get("expect") or {}).get("start") or {}
    if timing.pop("cap_of", "description") == "forecast" and start.get("cap"):
        timing["cap"] = float(start["cap"])
    return timing


def await_ready(
    eyes: Eyes,
    clock: Clock,
    timing: Mapping[str, float],
    poll: float,
    emit: Callable[[Dict[str, Any]], None],
) -> Optional[Check]:
    """Wait until the engine says that it is ready. None, or the check that failed."""
    told = clock.monotonic()
    progress = Progress(told, stall=float(timing["stall"]), cap=float(timing["cap"]))
    shown: Mapping[str, str] = {}
    moved = ""
    while True:
        look = eyes.look()
        now = clock.monotonic()
        if look.crashed is not None:
            return look.crashed
        moved = progress.observe(now, look.events, look.samples, look.gpu_used) or moved
        if dict(look.ranks) != dict(shown) or now - told >= QUIET:
            shown, told = dict(look.ranks), now
            idle = round(progress.idle(now), 1)
            emit({"event": "progress", "ranks": shown, "moved": moved, "idle": idle})
            moved = ""
        if look.ready:
            return None
        reason = progress.verdict(now)
        if reason:
            where = ", ".join(f"{rank} at {phase}" for rank, phase in sorted(look.ranks.items()))
            detail = f"{reason}; {where or 'no rank has logged anything'}"
            return Check("start", FAIL, detail, list(look.log))
        clock.sleep(poll)
