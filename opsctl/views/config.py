"""`opsctl config show`: each value as it counts, and where it was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsctl.remote.sanitise import text as harmless
from opsctl.views.fold import Listing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from opsctl.spec import Shown


KEYS = 44  # characters of a key that is not broken: values are, before it


def table(rows: Sequence[Shown], *, origin: bool) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    columns = ("HOST", "SERVICE", "KEY", "VALUE")
    cells = [tuple(map(harmless, (row.host, row.service, row.key, value(row)))) for row in rows]
    if origin:
        told = [(*row, harmless(shown.origin)) for row, shown in zip(cells, rows, strict=True)]
        return Listing((*columns, "ORIGIN"), told, head=4, style=_style)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    longest = max((len(row.key) for row in rows), default=0)
    for column in columns:
        whole = column == "KEY" and longest <= KEYS
        drawn.add_column(column, overflow="fold", no_wrap=whole)
    for row, shown in zip(cells, rows, strict=True):
        drawn.add_row(*(Text(cell, _style(shown.origin)) for cell in row))
    return drawn


def _style(origin: str) -> str:
    return "dim" if origin == "default" else ""


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
