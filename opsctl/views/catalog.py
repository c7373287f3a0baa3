"""`opsctl catalog`: versions in a table, and what is different between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsctl.engine import store
from opsctl.engine.changes import KINDS, Change

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One version. `new`, `gone`: flags against the version before; None for the oldest. `added`:
    the file of a catalogue that is not opsctl's own."""

    version: str
    flags: int
    new: int | None
    gone: int | None
    added: str | None


def rows() -> list[Row]:
    found: list[Row] = []
    before: set[str] | None = None
    for version, file in store.where().items():
        names = set(store.table(version))
        new, gone = (None, None) if before is None else (len(names - before), len(before - names))
        own = store.own().joinpath(file.name).is_file()
        found.append(Row(version, len(names), new, gone, None if own else str(file)))
        before = names
    return found


def table(found: Sequence[Row]) -> Table:
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("VERSION", "FLAGS", "NEW", "GONE", "ADDED"):
        drawn.add_column(column, justify="right" if column in ("FLAGS", "NEW", "GONE") else "left")
    for row in found:
        counts = ("–" if n is None else str(n) for n in (row.new, row.gone))
        drawn.add_row(row.version, str(row.flags), *counts, row.added or "")
    return drawn


def difference(a: str, b: str, changes: Sequence[Change]) -> RenderableType:
    """The changes in groups, the gravest group first."""
    from rich.console import Group
    from rich.text import Text

    if not changes:
        return Text(f"no difference between SGLang {a} and {b}")
    parts: list[RenderableType] = []
    for kind, heading in KINDS.items():
        if group := [change for change in changes if change.kind == kind]:
            parts += [Text(f"{heading} ({len(group)})", "bold"), _group(group)]
    blocked = sum(change.blocks for change in changes)
    if blocked:
        flags = "flag as it is" if blocked == 1 else "flags as they are"
        parts.append(Text(f"SGLang {b} refuses {blocked} {flags} written", "bold red"))
    return Group(*parts)


def _group(group: Sequence[Change]) -> Table:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for change in group:
        style = "red" if change.blocks else ""
        drawn.add_row(Text(change.flag, style), Text(_words(change)))
    return drawn


def _words(change: Change) -> str:
    if change.hint in ("", f"write {change.after}"):  # the text has said it
        return change.text
    return f"{change.text}{' ' if change.text.endswith('.') else '; '}{change.hint}"
