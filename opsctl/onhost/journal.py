"""The journal of one start as structured events, and the facts that they add up to.

Kinds of events (wording.py has the texts, with the figures in `data`):
  args dist_begin dist_end weights_begin weights_bar weights_end kv_bound kv kv_final state window
  pools_end
  graph_begin graph_bar graph_end limits host_auto host_pool app_ready listening ready draining
  error                                     a line that tells of a failure: {"cause", "weight"}
  unit_started unit_stopping unit_exit unit_failed unit_oom unit_restart unit_limit unit_error

A start with a draft model loads weights and allocates KV twice on every rank: the second time is
the draft's (up to 0.5.13 after the target's KV, from 0.5.14 on before it; the target's pool comes
first in all versions). Such events carry {"draft": True}.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from . import phases, rankpools
from .causes import EXCEPTION, FATAL, Cause, classify
from .decisive import Decisive
from .model import Event, RankFacts, Record, StartFacts
from .wording import BARS, ENGINE, SYSTEMD, Line, parse_prefix, read

LONGEST_TEXT = 600

RANK_KINDS = {
    "dist_begin", "dist_end", "weights_begin", "weights_end", "kv_dtype", "kv_bound", "kv",
    "kv_final", "state", "window", "pools_end", "graph_begin", "graph_end", "limits", "host_auto",
    "host_pool",
}  # fmt: skip
_PHASE = {
    "dist_begin": "dist", "dist_end": "dist", "weights_begin": "weights", "weights_end": "weights",
    "kv_bound": "kv", "kv": "kv", "kv_final": "kv", "state": "kv", "window": "kv",
    "pools_end": "kv",
    "graph_begin": "graphs", "graph_end": "graphs",
    "host_auto": "hostpool", "host_pool": "hostpool",
}  # fmt: skip
_TRACEBACK = "Traceback (most recent call last):"
_CHAIN = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct)"
)
# What ends a traceback, whatever the exception is called: "torch._dynamo.exc.Unsupported: …".
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?::|$)")


def events(records: Iterable[Record]) -> Iterator[Event]:
    """The structured events of one start, in the order of its records."""
    reading = Reading()
    for record in records:
        yield from reading.feed(record)


def facts(found: Iterable[Event], invocation: str = "") -> StartFacts:
    """What the events of one start add up to."""
    reading = Reading(invocation)
    for event in found:
        reading.add(event)
    return reading.facts


class Reading:
    """Reads one start record by record; `facts` is true at any time between two records."""

    def __init__(self, invocation: str = "") -> None:
        self.facts = StartFacts(invocation=invocation)
        self._tracebacks: Dict[int, str] = {}  # pid → rank of the traceback that is open
        self._in_frames: Dict[int, bool] = {}  # pid → its last line was one of the frames
        self._decisive = Decisive()
        self._loads: Dict[str, int] = {}  # rank → how often it began to load weights
        self._speculative = False
        self._kv_lines: Dict[str, List[Dict[str, Any]]] = {}  # rank → its lines about KV caches

    @property
    def silent(self) -> bool:
        """Whether no line of the engine itself was among the records."""
        return self._decisive.silent

    def feed(self, record: Record) -> List[Event]:
        """Take one record; returns the events in it (none, or one)."""
        line = parse_prefix(record.text)
        self.facts.began = self.facts.began or record.time
        kind, data = self._kind(record, line)
        if (record.source or line.prefixed) and not kind.endswith("_bar"):
            self._decisive.heard(_short(kind, record.text))
            if self.facts.exit:
                self._decide()
        if kind:
            self._tracebacks.pop(record.pid, None)
        elif self._in_traceback(record, line):
            return self._exception(record, line)
        else:
            cause = classify(line.rest)
            if cause is None:
                return []
            kind, data = "error", {"cause": cause.name, "weight": cause.weight}
        rank = line.rank if kind in RANK_KINDS or (kind == "error" and line.prefixed) else ""
        return [self._event(kind, record, rank, data)]

    def _kind(self, record: Record, line: Line) -> Tuple[str, Dict[str, Any]]:
        if line.prefixed:
            return read(ENGINE, line.rest)
        kind, data = read(BARS, line.rest)
        if not kind and not record.source:
            kind, data = read(SYSTEMD, line.rest)
        return (kind, data) if kind else read(ENGINE[-4:], line.rest)

    def _event(self, kind: str, record: Record, rank: str, data: Dict[str, Any]) -> Event:
        if rank and kind in RANK_KINDS:
            data = self._mark_draft(kind, rank, data)
        event = Event(kind, record.time, rank, data, _short(kind, record.text))
        self.add(event)
        if rank in self.facts.ranks and record.pid:
            self.facts.ranks[rank].pid = record.pid
        return event

    def _mark_draft(self, kind: str, rank: str, data: Dict[str, Any]) -> Dict[str, Any]:
        loads = self._loads.get(rank, 0) + (kind == "weights_begin")
        known = self.facts.ranks.get(rank)
        if kind in ("weights_begin", "weights_end"):
            draft = loads > 1
        elif kind == "kv":
            draft = rankpools.is_draft(known, data, loads > 1 or self._speculative)
        elif kind in ("dist_begin", "dist_end"):
            draft = loads > 0
        else:
            draft = bool(data.get("draft"))
        return {**data, "draft": draft}

    # -- failures -------------------------------------------------------------------------------

    def _in_traceback(self, record: Record, line: Line) -> bool:
        """Whether the line belongs to a traceback; opens and closes the one of its process."""
        if _TRACEBACK in line.rest:
            self._tracebacks.setdefault(record.pid, line.rank)
            return True
        if line.prefixed:
            self._tracebacks.pop(record.pid, None)
            return False
        return record.pid in self._tracebacks

    def _exception(self, record: Record, line: Line) -> List[Event]:
        text, in_frames = line.rest, self._in_frames.get(record.pid, False)
        self._in_frames[record.pid] = text[:1].isspace()
        if _TRACEBACK in text:
            cause = classify(text.replace(_TRACEBACK, ""))  # "Scheduler hit an exception: …"
        elif text[:1].isspace() or not text or _CHAIN.match(text):
            return []
        else:
            cause = classify(text)
            if cause is None and in_frames and _RAISED.match(text):
                cause = EXCEPTION
        if cause is None:
            return []
        rank = self._tracebacks[record.pid]
        return [self._event("error", record, rank, _error(cause))]

    # -- facts ----------------------------------------------------------------------------------

    def add(self, event: Event) -> None:
        """Take one event into the facts."""
        kind, data, known = event.kind, event.data, self.facts
        known.last_event = max(known.last_event, event.time)
        if event.rank and kind in RANK_KINDS:
            self._add_rank(event)
        elif kind == "args":
            algorithm = str(data.get("speculative_algorithm", ""))
            self._speculative = algorithm not in ("", "NGRAM")
        elif kind == "app_ready":
            known.served = known.served or event.time
        elif kind == "ready":
            known.ready, known.readied = True, event.time
            for rank in known.ranks.values():
                rank.phase = "ready"
        elif kind == "listening":
            known.listening = True
        elif kind == "unit_restart":
            known.restarts += 1
        if kind == "error" or kind.startswith("unit_"):
            self._add_failure(event)

    def _add_failure(self, event: Event) -> None:
        kind, data, known = event.kind, event.data, self.facts
        cause = classify(event.text) if kind != "error" else None
        name = str(data.get("cause", cause.name if cause else ""))
        if name in FATAL or kind in ("unit_exit", "unit_failed", "unit_oom"):
            known.dead = True
        if kind == "unit_exit":
            known.exit = f"code={data['code']}, status={data['status']}"
        elif kind == "unit_failed":
            known.exit = f"{known.exit}, result={data['result']}".lstrip(", ")
        if kind == "error":
            self._decisive.error(event.text, int(data["weight"]))
        elif kind not in ("unit_started", "unit_stopping", "unit_restart"):
            self._decisive.systemd(kind, event.text, cause)
        self._decide()

    def _decide(self) -> None:
        known = self.facts
        known.errors = self._decisive.lines(over=known.dead or bool(known.exit))

    def _add_rank(self, event: Event) -> None:
        rank = self.facts.ranks.setdefault(event.rank, RankFacts(event.rank, phase="start"))
        kind, data = event.kind, event.data
        if kind == "weights_begin":
            self._loads[event.rank] = self._loads.get(event.rank, 0) + 1
        if kind in _PHASE:
            rank.phase = "draft" if data.get("draft") else _PHASE[kind]
        lines = self._kv_lines.setdefault(event.rank, [])
        if kind == "kv":
            lines.append(data)
        if kind == "window":
            rankpools.add_window(rank, data, lines)
        elif data.get("draft"):
            _add_draft(rank, kind, data)
        else:
            _add_target(rank, kind, data)
        phases.mark(rank.ends, event)


def _add_target(rank: RankFacts, kind: str, data: Dict[str, Any]) -> None:
    if kind == "weights_begin":
        rank.free_before_weights = data["available"]
    elif kind == "weights_end":
        rank.free_after_weights = data["available"] or rank.free_after_weights
        rank.weights_bytes = data["used"] if data["used"] is not None else rank.weights_bytes
        rank.load_seconds = data["seconds"] or rank.load_seconds
    elif kind in ("kv", "kv_final"):
        rankpools.add_kv(rank, kind, data)
    elif kind == "state":
        rankpools.add_state(rank, data)
    elif kind == "kv_dtype":
        rank.kv_dtype = data["dtype"]
    elif kind == "limits":
        rankpools.add_limits(rank, data["tokens"])
    elif kind == "host_pool":
        rankpools.add_host_pool(rank, data)


def _add_draft(rank: RankFacts, kind: str, data: Dict[str, Any]) -> None:
    """Several draft runners (multi-layer EAGLE) add up."""
    if kind == "weights_end" and data["used"] is not None:
        rank.draft["weights_bytes"] = rank.draft.get("weights_bytes", 0) + data["used"]
        if data["available"] is not None:
            rank.draft["free_after"] = data["available"]
    elif kind in ("kv", "kv_final"):
        rank.draft["kv_tokens"] = data["tokens"]
        if data["bytes"] is not None:
            rank.draft["kv_bytes"] = rank.draft.get("kv_bytes", 0) + data["bytes"]


def _error(cause: Cause) -> Dict[str, Any]:
    return {"cause": cause.name, "weight": cause.weight}


def _short(kind: str, text: str) -> str:
    """server_args= is 10 to 19 KB and may hold keys: an event says only that it came."""
    if kind == "args":
        return text[: text.find("server_args=") + len("server_args=")] + "…"
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
