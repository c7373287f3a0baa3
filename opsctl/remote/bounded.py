"""What is kept of a host's output: lines of a bounded length, the last part of stderr."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from opsctl.remote import sanitise
from opsctl.remote.host import TooMuch

MAX_LINE = 4 << 20  # bytes of one line; the longest honest one is a JSON document


def too_much(host: str, argv: Sequence[str], limit: str) -> TooMuch:
    words = [word for word in argv if "\n" not in word and len(word) < 80]
    command = sanitise.text(shlex.join(words[:8]), line=120)
    return TooMuch(
        f"`{command}` sent more than {limit} and was cut off",
        host=host,
        step=command,
        hint="look at what the host prints at login (~/.bashrc, PAM) or at the command itself",
    )


class Tail:
    """The last `limit` bytes of what it is fed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.cut = False

    def feed(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > self._limit:
            self.cut = True
            del self._kept[: -self._limit]

    def text(self) -> str:
        return sanitise.text(bytes(self._kept))


class Lines:
    """Whole lines out of pieces, each one harmless. Raises TooMuch for a line without end."""

    def __init__(self, host: str, argv: Sequence[str]) -> None:
        self._host, self._argv = host, argv
        self._begun = bytearray()

    def feed(self, data: bytes) -> Iterator[str]:
        self._begun += data
        if b"\n" in data:
            *whole, rest = bytes(self._begun).split(b"\n")
            self._begun = bytearray(rest)
            for line in whole:
                yield sanitise.text(line.removesuffix(b"\r"), line=MAX_LINE)
        if len(self._begun) > MAX_LINE:
            raise too_much(self._host, self._argv, f"{MAX_LINE >> 20} MiB in one line")

    def rest(self) -> Iterator[str]:
        if self._begun:
            yield sanitise.text(bytes(self._begun), line=MAX_LINE)
            self._begun.clear()
