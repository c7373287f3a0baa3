"""How the runs of a rollout ended, one line a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsctl.remote.sanitise import text as harmless
from opsctl.views import checks
from opsctl.views.figures import NONE, short, span

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opsctl.rollout.model import Result, Results


def table(results: Results) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("HOST", "SERVICE", "RESULT", "RELEASE", "AFTER", "CAUSE"):
        drawn.add_column(column, overflow="fold")
    for result in results.results:
        style = "green" if result.good else "red"
        drawn.add_row(*(Text(cell, style if n == 2 else "") for n, cell in enumerate(row(result))))
    parts: list[RenderableType] = [drawn]
    for result in results.results:
        if checks.failed(result.checks):
            parts += [Text(f"{result.host} {result.service}", "bold"), checks.table(result.checks)]
    return Group(*parts)


def row(result: Result) -> tuple[str, ...]:
    return (
        result.host,
        result.service,
        result.outcome.replace("_", " "),
        short(result.release),
        span(result.seconds) if result.seconds else NONE,
        harmless(result.cause) or NONE,
    )
