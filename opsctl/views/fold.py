"""What becomes of text and tables where a line has no room for them: nothing is cut, no name is
broken. A terminal of 80 columns is the measure; off a terminal, without COLUMNS, nothing folds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

GAP = 2  # blanks between two columns
HANG = 2  # blanks by which the rest of a paragraph stands deeper than its beginning
NARROWEST = 20
_COLUMN = re.compile(r"(?<=  )\S(?!.*  \S)")  # the first letter after the last wide gap

Style = Callable[[str], str]


class Hanging:
    """A paragraph whose further lines stand deeper than its first one, so that the next paragraph
    can be told from them. What it begins with in blanks stays; text in columns (two blanks or more
    apart) goes on below its last column."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        lead = len(self.text) - len(self.text.lstrip(" "))
        body = Text(self.text[lead:], self.style, overflow="fold")
        room = options.max_width - lead
        if body.cell_len <= room:
            yield Text(self.text, self.style)
            return
        apart = _COLUMN.search(body.plain)
        hang = apart.start() if apart and apart.start() <= room - NARROWEST else HANG
        if hang != HANG:
            yield from self._in_columns(console, body, lead, hang, room)
            return
        for n, line in enumerate(body.wrap(console, max(NARROWEST, room - hang))):
            line.rstrip()
            yield Text(" " * (lead + (hang if n else 0))).append(line)

    def _in_columns(
        self, console: Console, body: Text, lead: int, hang: int, room: int
    ) -> Iterator[Text]:
        from rich.text import Text

        before, last = body.divide([hang])
        for n, line in enumerate(last.wrap(console, room - hang)):
            line.rstrip()
            yield Text(" " * lead).append(before if not n else " " * hang).append(line)


class Listing:
    """Rows below headings. Where the widest row does not fit, each row becomes a paragraph: its
    first `head` cells stand in a table of their own, the others below them, each with its name.
    Cells of one row that say nothing (`nothing`) are left out of the paragraph."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        head: int,
        style: Style = lambda cell: "",
        nothing: str = "",
    ) -> None:
        self.columns, self.rows, self.head = columns, rows, head
        self.style, self.nothing = style, nothing

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        widths = self._widths()
        if sum(widths) + GAP * (len(widths) - 1) <= options.max_width:
            yield self._table()
            return
        head = self.head
        while head > 1 and sum(widths[:head]) + GAP * (head - 1) > options.max_width:
            head -= 1
        yield self._line(self.columns, widths[:head], lambda cell: "bold")
        for row in self.rows:
            yield self._line(row, widths[:head], self.style)
            yield from self._below(row, head, options.max_width)

    def _widths(self) -> list[int]:
        from rich.cells import cell_len

        return [
            max(cell_len(row[n]) for row in (self.columns, *self.rows))
            for n in range(len(self.columns))
        ]

    def _line(self, row: Sequence[str], widths: Sequence[int], style: Style) -> Text:
        from rich.text import Text

        line = Text(overflow="fold")
        for cell, width in zip(row, widths, strict=False):
            part = Text(cell, style(cell))
            part.pad_right(width + GAP - part.cell_len)
            line.append_text(part)
        line.rstrip()
        return line

    def _table(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
        for column in self.columns:
            drawn.add_column(column, overflow="fold")
        for row in self.rows:
            drawn.add_row(*(Text(cell, style=self.style(cell)) for cell in row))
        return drawn

    def _below(self, row: Sequence[str], head: int, width: int) -> Iterator[Hanging]:
        """The other cells, as many to a line as there is room for."""
        line = ""
        for name, cell in zip(self.columns[head:], row[head:], strict=True):
            if cell == self.nothing:
                continue
            said = f"{_named(name)} {cell}"
            if line and len(line) + len(said) + 3 > width:
                yield Hanging(line)
                line = ""
            line = f"{line} · {said}" if line else f"  {said}"
        if line:
            yield Hanging(line)


def _named(column: str) -> str:
    """A heading in the middle of a line: "KV TOKENS" is "KV tokens" there."""
    return " ".join(_WORDS.get(word, word.lower()) for word in column.split())


_WORDS = {"KV": "KV", "OS": "OS", "GPUS": "GPUs"}
