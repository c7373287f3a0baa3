"""The exceptions of opsctl, and the exit code that each one ends a command with.

OpsctlError
├── SpecError           2   a description, flag or value is refused (carries every Problem found)
├── NothingSelected     2   a selection matched no host or service
├── Refused             2   the command may not run like this; the hint says what to type
├── NotExamined         2   a host was reached, and `doctor` could not look at it
├── ChangesPending      3   --exit-code: there are changes, or a host has drifted
│   └── StalePlan       3   a plan file does not hold any more
├── Unreachable         4   one or more hosts could not be reached
├── RolledBack          5   a gate failed; the confirmed release was restored and serves
├── GateFailed          6   a gate failed and nothing was, or could be, restored
├── LockHeld            7   another run holds the host's lock
├── DoesNotFit          8   the forecast says that the host would not survive it
└── Interrupted       130   the operator stopped watching; the run can be resumed
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def folded(found: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """(host, what) of many hosts → ("h1, h2", what): what is the same on several is told once, in
    the order in which it was met first."""
    hosts: dict[T, list[str]] = {}
    for host, what in found:
        named = hosts.setdefault(what, [])
        if host not in named:
            named.append(host)
    return [(", ".join(named), what) for what, named in hosts.items()]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, in the words an operator needs at 3 a.m.

    Every part but `message` may be empty; `str()` joins those that are set.
    """

    message: str
    file: str = ""
    host: str = ""
    service: str = ""
    key: str = ""
    value: str = ""
    allowed: str = ""
    hint: str = ""

    def __str__(self) -> str:
        where = ", ".join(
            f"{name} {part}"
            for name, part in (
                ("file", self.file),
                ("host", self.host),
                ("service", self.service),
                ("key", self.key),
            )
            if part
        )
        text = f"{where}: {self.message}" if where else self.message
        if self.value:
            text += f" (value: {self.value})"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        if self.hint:
            text += f"; {self.hint}"
        return text


class OpsctlError(Exception):
    """Base of all. `hint` is the next command to type; `log` the decisive lines of the host."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        host: str = "",
        step: str = "",
        hint: str = "",
        log: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.host = host
        self.step = step
        self.hint = hint
        self.log = tuple(log)


class SpecError(OpsctlError):
    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class NothingSelected(OpsctlError):
    exit_code = 2


class Refused(OpsctlError):
    exit_code = 2


class NotExamined(OpsctlError):
    exit_code = 2


class ChangesPending(OpsctlError):
    exit_code = 3


class StalePlan(ChangesPending):
    pass


class Unreachable(OpsctlError):
    exit_code = 4


class RolledBack(OpsctlError):
    exit_code = 5


class GateFailed(OpsctlError):
    exit_code = 6


class LockHeld(OpsctlError):
    exit_code = 7


class DoesNotFit(OpsctlError):
    exit_code = 8


class Interrupted(OpsctlError):
    exit_code = 130


@dataclass
class Problems:
    """Collects problems so that one run tells all of them, not the first."""

    found: list[Problem] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        self.found.append(problem)

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(self.found)
