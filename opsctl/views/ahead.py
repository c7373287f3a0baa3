"""What a change will do to one service, for a terminal and for programs: the part of a plan that
needs a description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opsctl.engine.advisories import Advisory
from opsctl.forecast.document import sized
from opsctl.forecast.values import Figure
from opsctl.onhost.expect import left
from opsctl.rollout.beside import GB, TOKENS, Row
from opsctl.views import advisories
from opsctl.views.figures import NONE, count, gb, gib, span

if TYPE_CHECKING:
    from opsctl.rollout.foresight import Detail

Line = tuple[str, str]  # text, style
Block = tuple[str, list[Line]]
STYLE = {"fits": "green", "tight": "yellow", "does not fit": "bold red"}
_LEFT = "RAM left"
_WHOSE = {"description": "timing.cap", "forecast": "by the forecast", "usual": "as usual"}


def blocks(said: Detail, *, starts: bool) -> Iterator[Block]:
    """Named blocks may be the same on many hosts; those without a name are each host's own.
    A service that runs on as it is has only what needs somebody."""
    yield "problems", [(f"! {problem}", "bold red") for problem in said.problems]
    if starts:
        yield from _of_start(said)
    yield "", list(_verdict(said))  # last, where a terminal still shows it


def _of_start(said: Detail) -> Iterator[Block]:
    yield "figures", list(_table(said))
    yield "advisories", list(_advisories(said))
    if said.versions is not None:
        yield "engine", list(_engine(said))
    yield "notes", [(f"note: {note}", "dim") for note in said.notes if note != said.cap_warning]
    if said.takes:
        yield "duration", list(_duration(said))


# -- verdict --------------------------------------------------------------------------------------


def _verdict(said: Detail) -> Iterator[Line]:
    style = STYLE.get(said.verdict, "yellow")
    row = next((row for row in said.rows if row.name == _LEFT), None)
    told = f"forecast: {said.verdict}"
    if row is not None and row.then is not None:
        now = "" if row.now is None else f", {gib(row.now)} now"
        least = "" if row.least is None else f"; at worst {left(row.least)}"
        told += f"; then {left(row.then, ' of RAM')}{now}{least}; {gib(said.demanded)} demanded"
    yield told, style
    yield from ((f"  {why}", style) for why in said.reasons)
    if said.override:
        yield f"  overridden: {said.override}", "bold yellow"


# -- figures --------------------------------------------------------------------------------------


def _table(said: Detail) -> Iterator[Line]:
    """Columns of the same width as they come; the line of RAM is each host's own."""
    shown = [row for row in said.rows if row.name != _LEFT]
    if not shown:
        return
    cells = [("", "now", "then", "")]
    cells += [(_name(row), _now(row), figure(row.then, row.unit), _from(row)) for row in shown]
    widths = [max(len(row[n]) for row in cells) for n in range(3)]
    for n, row in enumerate(cells):
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield f"{text}  {row[3]}".rstrip(), "dim" if n == 0 else ""


def _name(row: Row) -> str:
    return f"{row.name} a rank" if row.scope == "rank" else row.name


def _now(row: Row) -> str:
    if row.now is None:
        return NONE
    return f"{figure(row.now, row.unit)} {row.now_basis}".strip()


def figure(value: int | None, unit: str) -> str:
    if value is None:
        return NONE
    return count(value) if unit == TOKENS else gb(value) if unit == GB else gib(value)


def _from(row: Row) -> str:
    if row.then is None:
        return ""
    told = f"{row.then_basis}: {row.source}" if row.source else row.then_basis
    if row.least == row.most:
        return told
    least, most = figure(row.least, row.unit), figure(row.most, row.unit)
    return told if least == most else f"{least} to {most}, {told}"


# -- what is known to go wrong, and what the version does -----------------------------------------


def _advisories(said: Detail) -> Iterator[Line]:
    known = []
    for one in said.advisories:
        if one.mark == "stays" and one.advisory.severity == "info":
            known.append(one.advisory.id)
        else:
            yield from advisories.lines([one.advisory], "new" if one.mark == "new" else "")
    if known:
        yield f"i info, as before: {', '.join(known)}", "dim"
    for ended in said.ended:
        yield f"✓ ends with this change: {ended.id}: {ended.text}", "green"


def _engine(said: Detail) -> Iterator[Line]:
    assert said.versions is not None
    head = f"engine {said.versions[0]} → {said.versions[1]}"
    if said.engine_unknown:
        yield f"{head}: {said.engine_unknown}", "yellow"
    elif not said.engine:
        yield f"{head}: no default or meaning changes that this service uses", ""
    for change in said.engine:
        hint = f"; {change.hint}" if change.hint else ""
        yield f"{head}: {change.kind} {change.flag}: {change.text}{hint}", "yellow"


# -- duration -------------------------------------------------------------------------------------


def lasting(total: Figure) -> str:
    """ "14 min 10 s (9 min to 20 min)" """
    if total.least is None or total.most is None or total.least == total.most:
        return span(total.value)
    return f"{span(total.value)} ({span(total.least)} to {span(total.most)})"


def _duration(said: Detail) -> Iterator[Line]:
    total = said.total
    parts = [f"{n} {lasting(f) if f else 'not known'}" for n, f in said.takes.items()]
    whole = "not known" if total is None else lasting(total)
    yield f"takes {whole}: {', '.join(parts)}", "cyan"
    longest = sorted(said.phases.items(), key=lambda one: -one[1].value)[:3]
    if longest:
        words = ", ".join(f"{name} {span(one.value)} ({one.basis})" for name, one in longest)
        yield f"  of the start: {words}", "dim"
    yield f"  a start is given up after {span(said.cap)} ({_WHOSE[said.cap_of]})", "dim"
    if said.cap_warning:
        yield f"! {said.cap_warning}", "bold yellow"


# -- for programs ---------------------------------------------------------------------------------


def entry(said: Detail) -> dict[str, Any]:
    return {
        "why": list(said.why),
        "verdict": said.verdict,
        "ram_verdict": said.ram,
        "gpu_verdict": said.gpu,
        "reasons": list(said.reasons),
        "unfit": said.unfit or None,
        "override": said.override or None,
        "min_available": said.demanded,
        "figures": [row.as_json() for row in said.rows],
        "advisories": [_marked(one.advisory, one.mark) for one in said.advisories],
        "ended_advisories": [_marked(one, "ends") for one in said.ended],
        "engine_changes": _engine_entry(said),
        "duration": {
            **sized("seconds", said.total),
            "steps": [{"step": name, **sized("seconds", f)} for name, f in said.takes.items()],
            "start_phases": [
                {"phase": name, **sized("seconds", f)} for name, f in said.phases.items()
            ],
        },
        "cap": {"seconds": said.cap, "of": said.cap_of, "warning": said.cap_warning or None},
        "problems": list(said.problems),
        "notes": list(said.notes),
    }


def _marked(one: Advisory, mark: str) -> dict[str, Any]:
    return {**one.as_json(), "mark": mark or None}


def _engine_entry(said: Detail) -> dict[str, Any] | None:
    if said.versions is None:
        return None
    return {
        "from": said.versions[0],
        "to": said.versions[1],
        "unknown": said.engine_unknown or None,
        "changes": [
            {
                "kind": change.kind,
                "flag": change.flag,
                "text": change.text,
                "before": change.before,
                "after": change.after,
                "hint": change.hint,
            }
            for change in said.engine
        ],
    }
