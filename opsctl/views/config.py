"""`opsctl config show`: each value as it counts, and where it was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsctl.remote.sanitise import text as harmless

if TYPE_CHECKING:
    from rich.table import Table

    from opsctl.spec import Shown


def table(rows: Sequence[Shown], *, origin: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    columns = ("HOST", "SERVICE", "KEY", "VALUE", *(("ORIGIN",) if origin else ()))
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        cells = (row.host, row.service, row.key, value(row), row.origin)
        style = "dim" if row.origin == "default" else ""
        drawn.add_row(*(Text(harmless(cell), style) for cell in cells[: len(columns)]))
    return drawn


def value(row: Shown) -> str:
    """Text as it is; the rest as JSON, so that 4 and "4", or null and "null", are told apart."""
    if isinstance(row.value, str) and not _reads_as_json(row.value):
        return row.value
    return json.dumps(row.value, ensure_ascii=False, default=str)


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
