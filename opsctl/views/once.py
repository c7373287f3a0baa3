"""What several hosts have in common is told of the first of them: fifty hosts with one release,
one change or one fault are read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Line = tuple[str, str]  # text, style


class Once:
    """Remembers what has been told of whom."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, tuple[Line, ...]], str] = {}

    def lines(self, who: str, blocks: Iterable[tuple[str, Sequence[Line]]]) -> Iterator[Line]:
        """Of each (name, lines) the lines, if nobody had the same before; of the others one line
        for all. A block without a name is each one's own."""
        same: dict[str, list[str]] = {}
        for name, rows in blocks:
            first = self._told.setdefault((name, tuple(rows)), who) if name and rows else who
            if first == who:
                yield from rows
            else:
                same.setdefault(first, []).append(name)
        for first, names in same.items():
            yield f"the same as on {first}: {', '.join(names)}", "dim"
