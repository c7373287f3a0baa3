"""The small protocol that all above speaks to a host with; ssh.py, local.py, fake.py obey it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from opsctl.errors import OpsctlError


@dataclass(frozen=True)
class Answer:
    """What a command said. `out` and `err` are harmless to a terminal.

    `truncated`: the end of `err` is missing. Too much on stdout is an error, never a short answer.
    """

    rc: int
    out: str
    err: str = ""
    truncated: bool = False


class TooMuch(OpsctlError):
    """A host sent more than any command of ours says; it was cut off."""


class Silent(OpsctlError):
    """The host is there, but its command said nothing, or did not end, within its time."""


class CommandFailed(OpsctlError):
    """A streamed command ended with another exit code than 0; `answer` holds it."""

    def __init__(self, host: str, argv: Sequence[str], answer: Answer) -> None:
        log = answer.err.strip().splitlines()[-20:]
        words = " ".join(word for word in argv[:4] if "\n" not in word)
        cause = log[-1] if log else "it said nothing on stderr"
        super().__init__(f"`{words}` ended with {answer.rc}: {cause}", host=host, log=log)
        self.answer = answer


class Host(Protocol):
    name: str

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        sudo: bool = True,
    ) -> Answer:
        """Run to the end. Raises Unreachable, Silent, TooMuch."""

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        """Lines of stdout as they come. The remote process ends when the iterator is closed.

        With `stdin` the command gets these bytes and must end by itself at their end of file,
        which comes at closing; without it, a wrapper ends the command. Raises Silent when nothing
        came for `idle` seconds, Unreachable when the connection is lost, TooMuch for a line
        without end, OpsctlError when the command fails.
        """

    def close(self) -> None: ...


@runtime_checkable
class Tunnels(Protocol):
    """A host whose own ports can be reached through the connection."""

    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        """A socket-like object. Raises PermissionError where the host forbids forwarding,
        ConnectionRefusedError where nobody listens."""


# Ends the command when stdin ends, or stdin when the command has ended. `cat` holds nothing of
# the channel but stdin, so that the channel closes as soon as the command does.
_UNTIL_CLOSED = (
    'exec 3<&0 </dev/null; "$@" 3<&- & p=$!; '
    "{ cat <&3; kill -TERM $p; } >/dev/null 2>&1 & w=$!; "
    "exec 3<&-; wait $p; rc=$?; kill $w 2>/dev/null; exit $rc"
)


def until_closed(argv: Sequence[str]) -> list[str]:
    """The command, ended by SIGTERM when its stdin is closed."""
    return ["sh", "-c", _UNTIL_CLOSED, "sh", *argv]
