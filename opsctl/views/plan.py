"""What a changing command is about to do, host by host, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from opsctl.errors import folded
from opsctl.remote.sanitise import text as harmless
from opsctl.views.fold import Hanging
from opsctl.views.once import Once

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opsctl.forecast.values import Figure
    from opsctl.rollout.foresight import Detail
    from opsctl.views.ahead import Line
FAILED = "; this release failed here"  # the last part of a reason


@dataclass(frozen=True)
class Step:
    """`action` is what happens to the service; "" means nothing does, and `reason` says why.
    `diff` is a unified diff with secrets masked; `forecast` what the release will take, in words;
    `detail` all that is known of the change, None where only a host's own release is at stake.
    `blocked`: nothing can be planned there; the service may be "", for a whole host. `later`: of
    a process that is taken over as it runs, what applies from its next start on.
    """

    host: str
    service: str
    action: str
    reason: str = ""
    diff: tuple[str, ...] = field(default=(), repr=False)
    forecast: tuple[str, ...] = ()
    detail: Detail | None = field(default=None, repr=False)
    blocked: bool = False
    later: tuple[str, ...] = ()


def pending(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.action]


def drawing(steps: Sequence[Step], total: Figure | None = None) -> RenderableType:
    """`total`: seconds of all of it. What is the same on several hosts is shown once: fifty hosts
    with one change are read as one change."""
    from rich.console import Group

    parts: list[RenderableType] = []
    once = Once()
    for step in joined(steps):
        style = "bold red" if step.blocked else "bold" if step.action else "dim"
        parts.append(Hanging(line(step), style))
        told = once.lines(step.host, _blocks(step))
        parts += [Hanging(f"  {harmless(text)}", style) for text, style in told]
    parts += [Hanging(text, "bold") for text in _closing(steps, total)]
    return Group(*parts)


def joined(steps: Sequence[Step]) -> list[Step]:
    """Hosts where the same cannot be planned for the same reason, and of which nothing else is
    known, are one step."""

    def alone(step: Step) -> bool:
        return step.blocked and step.detail is None

    same = folded((s.host, (s.service, s.reason)) for s in steps if alone(s))
    names = {what: hosts for hosts, what in same}
    found: list[Step] = []
    for step in steps:
        if not alone(step):
            found.append(step)
        elif hosts := names.pop((step.service, step.reason), None):
            found.append(replace(step, host=hosts))
    return found


def _blocks(step: Step) -> Iterator[tuple[str, list[Line]]]:
    """(name, lines); a block without a name is each host's own."""
    if reasons := _reasons(step):
        yield "reasons", [(f"· {why}", "") for why in reasons]
    if step.later:
        yield "later", [(f"from the next start on: {'; '.join(step.later)}", "")]
    if step.diff:
        yield "diff", [(row, _style(row)) for row in step.diff]
    if step.detail is not None:
        from opsctl.views import ahead

        yield from ahead.blocks(step.detail, starts=_starts(step))


def _reasons(step: Step) -> tuple[str, ...]:
    """One line a changed flag, where there are several; a single one stands in the headline."""
    why = step.detail.why if step.detail is not None and step.action else ()
    return why if len(why) > 1 and all(reason in step.reason for reason in why) else ()


def _starts(step: Step) -> bool:
    return step.action not in ("", "stage", "takeover")


def _closing(steps: Sequence[Step], total: Figure | None) -> Iterator[str]:
    wanted = [step for step in steps if _starts(step)]
    if total is None or len(wanted) < 2:
        return
    from opsctl.views import ahead

    order = ", ".join(f"{step.host} {step.service}" for step in wanted)
    yield f"in this order, each after the one before is confirmed: {order}"
    yield f"in all {ahead.lasting(total)}"


def line(step: Step) -> str:
    """Reasons of the rollout engine begin with what is done; the others are told after it."""
    who = f"{step.host} {step.service}".strip()
    if step.blocked:
        return f"{who}: cannot be planned: {harmless(step.reason)}"
    what, why = step.action or "no change", harmless(step.reason)
    if reasons := _reasons(step):
        head = step.reason[: step.reason.index(reasons[0])].rstrip(": ")
        warned = step.reason[step.reason.rindex(reasons[-1]) + len(reasons[-1]) :]
        return f"{who}: {harmless(head)}: {len(reasons)} changes{harmless(warned)}"
    if why.startswith(("restart:", "no restart:", "start:")):
        what = why
    elif why:
        what = f"{what}: {why}"
    return f"{who}: {what}"


def document(steps: Sequence[Step], total: Figure | None = None) -> dict[str, Any]:
    """For programs. Steps stand in the order in which they are done. Figures X come with `X_band`,
    `X_basis` and `X_source`, as in a forecast; those that need a description are left out where
    there is none."""
    return {
        "schema_version": 1,
        "changes": len(pending(steps)),
        **_lasting(total),
        "steps": [_step(step) for step in steps],
    }


def _lasting(total: Figure | None) -> dict[str, Any]:
    if total is None:
        return {"seconds": None}
    from opsctl.forecast.document import sized

    return sized("seconds", total)


def _step(step: Step) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if step.detail is not None:
        from opsctl.views import ahead

        more = ahead.entry(step.detail)
    return {
        "host": step.host,
        "service": step.service or None,
        "action": step.action or None,
        "blocked": step.blocked,
        "reason": step.reason,
        "diff": list(step.diff),
        "forecast": list(step.forecast),
        "from_next_start": list(step.later),
        **more,
    }


def _style(row: str) -> str:
    if row.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "dim")
