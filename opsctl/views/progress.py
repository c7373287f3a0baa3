"""Runs as they go: what each rank is doing, how long nothing has moved, gates as they pass.

A run's picture is a fold over its events (docs/architecture.md), so it can be drawn live on a
terminal, or told line by line where there is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from opsctl.remote.sanitise import text as harmless
from opsctl.rollout.model import restored
from opsctl.rollout.steps import touched
from opsctl.views import checks
from opsctl.views.figures import short, span
from opsctl.views.fold import Hanging

if TYPE_CHECKING:
    from rich.console import RenderableType

# Off a terminal a start of many minutes still says now and then that it is alive.
HEARTBEAT = 60.0
# Shorter silences than this are ordinary, and would only flicker.
STILL = 5.0


@dataclass(frozen=True)
class Picture:
    """One run on one host, as far as its events tell. Times: seconds since the epoch (host's)."""

    host: str
    service: str
    phase: str = "waiting"
    began: float = 0.0
    last: float = 0.0
    ranks: Mapping[str, str] = field(default_factory=dict)
    moved: str = ""
    idle: float = 0.0
    gates: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    result: Mapping[str, Any] | None = None


def advance(picture: Picture, event: Mapping[str, Any]) -> Picture:
    """The picture after one more event; events that this version does not know change nothing."""
    time = float(event.get("time") or picture.last)
    picture = replace(picture, last=time, began=picture.began or time)
    kind = event.get("event")
    if kind == "phase":
        phase = str(event["phase"])
        fresh = phase in ("start", "restore")  # another process: what the ranks did is over
        return replace(picture, phase=phase, ranks={} if fresh else picture.ranks, idle=0.0)
    if kind == "progress":
        ranks = {**picture.ranks, **(event.get("ranks") or {})}
        moved, idle = str(event.get("moved") or ""), float(event.get("idle") or 0.0)
        return replace(picture, ranks=ranks, moved=moved, idle=idle)
    if kind == "gate":
        check = event["check"]
        kept = tuple(g for g in picture.gates if g["id"] != check["id"])
        return replace(picture, gates=(*kept, check))
    if kind == "note":
        return replace(picture, notes=(*picture.notes, said(event)))
    if kind == "result":
        return replace(picture, result=event, phase=str(event.get("outcome") or "done"))
    return picture


def said(event: Mapping[str, Any]) -> str:
    return harmless(event.get("text") or event.get("message") or event.get("detail") or "")


def tell(before: Picture, after: Picture, event: Mapping[str, Any]) -> list[str]:
    """The plain lines that an event is worth; none for a poll that found nothing new."""
    head = f"{after.host} {after.service}: "
    kind = event.get("event")
    if kind == "phase":
        return [f"{head}{after.phase}"]
    if kind == "gate":
        check = event["check"]
        lines = [head + checks.line(check)]
        if check["status"] == "fail":
            proof = checks.beyond(check["detail"], check.get("evidence") or ())
            lines += [f"{head}  │ {harmless(line)}" for line in proof]
        return lines
    if kind == "note":
        return [f"{head}{line}" for line in _note(before, event)]
    if kind == "result":
        return [head + outcome(event)]
    if kind == "progress":
        return [head + line for line in _moves(before, after)]
    return []


def _note(before: Picture, event: Mapping[str, Any]) -> list[str]:
    """The guard's reason to try again or restore is the gate that has just been told."""
    text = said(event)
    if before.gates and text == f"{before.gates[-1]['id']}: {harmless(before.gates[-1]['detail'])}":
        return []
    return [text, *(f"  │ {harmless(line)}" for line in event.get("log") or ())]


def outcome(result: Mapping[str, Any]) -> str:
    words = {
        "confirmed": "confirmed",
        "rolled_back": restored(str(result.get("cause") or "")),
        "failed": "failed, and nothing was restored",
        "unchanged": "nothing to do",
    }
    if result.get("outcome") == "failed" and not touched(result):
        # The guard's cause says so itself: "refused before anything was touched: …".
        return harmless(result.get("cause") or "refused before anything was touched")
    said = words.get(str(result.get("outcome")), str(result.get("outcome")))
    if result.get("release"):
        said += f", release {short(str(result['release']))}"
    if result.get("seconds") is not None:
        said += f", after {span(float(result['seconds']))}"
    if result.get("cause"):
        said += f": {harmless(result['cause'])}"
    return said


def summary(ranks: Mapping[str, str]) -> str:
    """ "8 ranks: weights 5, kv 3" """
    if not ranks:
        return "no rank has spoken yet"
    counts = Counter(phase or "started" for phase in ranks.values())
    parts = ", ".join(f"{phase} {n}" for phase, n in sorted(counts.items()))
    return f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''}: {parts}"


def drawing(
    pictures: Mapping[tuple[str, str], Picture], ages: Mapping[tuple[str, str], float] | None = None
) -> RenderableType:
    """All runs for a live terminal. `ages`: seconds since each run's last event came.

    A run at work has a head line, its ranks and gates; one that ended well only its head line,
    or a fleet would not fit a screen.
    """
    from rich.console import Group

    parts: list[RenderableType] = []
    for key, picture in pictures.items():
        parts.append(Hanging(_head(picture, (ages or {}).get(key, 0.0)), _style(picture)))
        if picture.result is None and picture.ranks:
            parts.append(_ranks(picture))
        shown = [g for g in picture.gates if picture.result is None or g["status"] == "fail"]
        if shown:
            parts.append(checks.table(shown, proven=("fail",)))
        if picture.result is None:
            parts += [Hanging(f"  {note}", "dim") for note in picture.notes[-3:]]
    return Group(*parts)


def _head(picture: Picture, age: float) -> str:
    name = f"{picture.host} {picture.service}"
    if picture.result is not None:
        return f"{name}: {outcome(picture.result)}"
    text = f"{name}: {picture.phase}, {span(picture.last - picture.began + age)}"
    if picture.phase in ("start", "restore"):
        text += f"; {summary(picture.ranks)}"
    if picture.idle >= STILL:
        text += f"; nothing has moved for {span(picture.idle)}"
    elif picture.moved:
        text += f"; moving: {picture.moved}"
    return text


def _ranks(picture: Picture) -> RenderableType:
    from rich.columns import Columns
    from rich.text import Text

    ranks = sorted(picture.ranks.items(), key=lambda item: _natural(item[0]))
    return Columns([Text(f"  {rank} {phase or 'started'}") for rank, phase in ranks])


def _natural(rank: str) -> list[int]:
    """TP10 comes after TP9."""
    return [int(number) for number in re.findall(r"\d+", rank)]


def _style(picture: Picture) -> str:
    if picture.result is None:
        return "bold"
    good = picture.result.get("outcome") in ("confirmed", "unchanged")
    return "green" if good else "red"


def _moves(before: Picture, after: Picture) -> list[str]:
    if summary(before.ranks) != summary(after.ranks):
        return [summary(after.ranks)]
    if after.idle // HEARTBEAT > before.idle // HEARTBEAT:
        return [f"nothing has moved for {span(after.idle)}; {summary(after.ranks)}"]
    beats = (p.last - p.began for p in (after, before))
    if next(beats) // HEARTBEAT > next(beats) // HEARTBEAT:
        return [f"{after.phase} for {span(after.last - after.began)}; {summary(after.ranks)}"]
    return []
