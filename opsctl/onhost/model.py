"""The values that the rooms of the ground floor hand to each other. Pure data, JSON-ready."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"


@dataclass(frozen=True)
class Check:
    """What one gate found. `id` is the gate's name; `evidence` the decisive lines, verbatim."""

    id: str
    status: str
    detail: str
    evidence: List[str] = field(default_factory=list)

    def as_json(self) -> Dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Record:
    """One journal record. `time` is microseconds since the epoch (UTC); `source` is the process
    ("" for systemd's own lines); `pid` its PID. `text` has control characters made harmless."""

    time: int
    text: str
    pid: int = 0
    source: str = ""


@dataclass(frozen=True)
class Event:
    """One structured line of a start.

    `kind`: see journal.py. `rank`: canonical label (DPa PPb TPc, parts as the engine shows them,
    "TP0" when it shows none; never the EP part); "" for lines of no rank.
    `data`: figures in bytes, tokens or seconds, already converted from the engine's own unit.
    """

    kind: str
    time: int
    rank: str
    data: Dict[str, Any]
    text: str


@dataclass
class RankFacts:
    """What one rank logged in this start. Bytes are integers, None where nothing was logged."""

    rank: str
    phase: str = ""
    free_before_weights: Optional[int] = None
    free_after_weights: Optional[int] = None
    weights_bytes: Optional[int] = None
    load_seconds: Optional[float] = None
    kv_tokens: Optional[int] = None
    kv_bytes: Optional[int] = None
    kv_dtype: str = ""
    max_total_tokens: Optional[int] = None
    # {"name", "bytes", "tokens" or None} in the order logged; the engine logs tokens from 0.5.17 on
    host_pools: List[Dict[str, Any]] = field(default_factory=list)
    # the draft model of the same rank: "weights_bytes", "free_after", "kv_tokens", "kv_bytes" as
    # far as logged
    draft: Dict[str, Any] = field(default_factory=dict)
    # further device pools of the target: {"name": "swa", "mamba" or "", "tokens", "bytes"}
    other_pools: List[Dict[str, Any]] = field(default_factory=list)
    pid: int = 0  # of the process that logs for this rank
    ends: List[List[Any]] = field(default_factory=list)  # [phase, microseconds]: see phases.py


@dataclass
class StartFacts:
    """Everything that the journal tells about one start (one systemd invocation)."""

    invocation: str = ""
    engine_version: str = ""
    ranks: Dict[str, RankFacts] = field(default_factory=dict)
    ready: bool = False  # "fired up and ready to roll"
    listening: bool = False  # uvicorn runs
    restarts: int = 0
    errors: List[str] = field(default_factory=list)  # decisive lines, the cause first
    dead: bool = False  # a line was logged that the engine does not survive
    exit: str = ""  # systemd's words on how the main process ended
    last_event: int = 0  # microseconds since the epoch, as the three that follow
    began: int = 0  # the first line of this start
    served: int = 0  # the HTTP process is up; every rank is ready then
    readied: int = 0  # the first answer is given

    def as_json(self) -> Dict[str, Any]:
        return asdict(self)


ENGAGED = ("active", "activating", "reloading")  # there is something that a stop would stop


def waits(sub: str) -> bool:
    """Dead, and only waiting for systemd to start it again: nothing of it runs."""
    return sub.startswith("auto-restart")  # or auto-restart-queued, since systemd 254


def up(active: str, sub: str) -> bool:
    """Running, or on its way by our wish: not waiting for an automatic restart."""
    return active in ENGAGED and not waits(sub)
