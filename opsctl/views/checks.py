"""The gates' table of `verify`, and of the end of every rollout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opsctl.remote.sanitise import text as harmless

if TYPE_CHECKING:
    from rich.table import Table

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "inconclusive": ("?", "yellow")}


def table(
    checks: Iterable[Mapping[str, Any]], *, proven: Collection[str] = ("fail", "inconclusive")
) -> Table:
    """One line a gate; below a gate that ended so (`proven`), its evidence."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_header=False)
    drawn.add_column()
    drawn.add_column()
    drawn.add_column(overflow="fold")
    for check in checks:
        mark, style = _MARKS.get(check["status"], ("?", "yellow"))
        drawn.add_row(Text(mark, style), Text(check["id"], style), Text(harmless(check["detail"])))
        if check["status"] in proven:
            for line in beyond(check["detail"], check.get("evidence") or ()):
                drawn.add_row("", "", Text(f"│ {harmless(line)}", "dim"))
    return drawn


def beyond(said: str, lines: Iterable[str]) -> list[str]:
    """Those of `lines` that were not said already: a detail often quotes the first."""
    return [line for line in lines if line not in said]


def line(check: Mapping[str, Any]) -> str:
    """A gate as one plain line, for logs and pipes."""
    mark = _MARKS.get(check["status"], ("?", ""))[0]
    return f"{mark} {check['id']}: {harmless(check['detail'])}"


def failed(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    return [check["id"] for check in checks if check["status"] == "fail"]
