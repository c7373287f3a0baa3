"""What a changing command is about to do, host by host, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opsctl.remote.sanitise import text as harmless

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Step:
    """`action` is what happens to the service; "" means nothing does, and `reason` says why.
    `diff` is a unified diff with secrets masked; `forecast` what the release will take, in words.
    """

    host: str
    service: str
    action: str
    reason: str = ""
    diff: tuple[str, ...] = field(default=(), repr=False)
    forecast: tuple[str, ...] = ()


def pending(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.action]


def drawing(steps: Sequence[Step]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    diffs: dict[tuple[str, ...], str] = {}
    forecasts: dict[tuple[str, ...], str] = {}
    for step in steps:
        style = "bold" if step.action else "dim"
        parts.append(Text(line(step), style))
        if first := _told(diffs, step.diff, step.host):
            parts.append(Text(f"  the same diff as on {first}", "dim"))
        else:
            parts += [Text(f"  {harmless(row)}", _style(row)) for row in step.diff]
        forecast = step.forecast if step.action else ()
        if first := _told(forecasts, forecast, step.host):
            parts.append(Text(f"  forecast: the same as on {first}", "cyan"))
        else:
            parts += [Text(f"  forecast: {harmless(row)}", "cyan") for row in forecast]
    return Group(*parts)


def _told(before: dict[tuple[str, ...], str], rows: tuple[str, ...], host: str) -> str:
    """The host that these rows were shown for, "" if they are new: fifty hosts with one change
    are read as one change."""
    if not rows:
        return ""
    first = before.setdefault(rows, host)
    return "" if first == host else first


def line(step: Step) -> str:
    """Reasons of the rollout engine begin with what is done; the others are told after it."""
    what, why = step.action or "no change", harmless(step.reason)
    if why.startswith(("restart:", "no restart:", "start:")):
        what = why
    elif why:
        what = f"{what}: {why}"
    return f"{step.host} {step.service}: {what}"


def document(steps: Sequence[Step]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "changes": len(pending(steps)),
        "steps": [
            {
                "host": step.host,
                "service": step.service,
                "action": step.action or None,
                "reason": step.reason,
                "diff": list(step.diff),
                "forecast": list(step.forecast),
            }
            for step in steps
        ],
    }


def _style(row: str) -> str:
    if row.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "dim")
