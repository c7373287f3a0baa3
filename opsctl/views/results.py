"""How the runs of a rollout ended, one line a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsctl.remote.sanitise import text as harmless
from opsctl.views import checks
from opsctl.views.figures import NONE, short, span
from opsctl.views.fold import Hanging, Listing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opsctl.rollout.model import Result, Results


COLUMNS = ("HOST", "SERVICE", "RESULT", "RELEASE", "AFTER", "CAUSE")


def table(results: Results) -> RenderableType:
    from rich.console import Group

    rows = [row(result) for result in results.results]
    good = {row(result)[2] for result in results.results if result.good}
    bad = {cells[2] for cells in rows} - good
    drawn = Listing(
        COLUMNS,
        rows,
        head=5,
        style=lambda cell: "green" if cell in good else "red" if cell in bad else "",
        nothing=NONE,
    )
    parts: list[RenderableType] = [drawn]
    for result in results.results:
        if checks.failed(result.checks):
            parts += [
                Hanging(f"{result.host} {result.service}", "bold"),
                checks.table(result.checks),
            ]
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
