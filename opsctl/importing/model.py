"""What an import says: a description, the secrets that it leaves out, and a report as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsctl.errors import Problem

# What a note says of one thing, in the order in which they are shown.
KINDS = {
    "moved": "secrets, moved to variables for a vault",
    "changed": "changed",
    "lost": "not carried: opsctl has no place for it",
    "dropped": "left out: it does nothing here",
    "carried": "carried as it is",
    "told": "worth knowing",
}


@dataclass(frozen=True)
class Note:
    """One line of the report. `kind` is one of KINDS; no text holds a secret's value."""

    kind: str
    what: str
    why: str


@dataclass(frozen=True)
class Risk:
    """What is dangerous in the unit that was. `setting`: the line that makes it so, or the setting
    that is missing; `risk`: what it may do; `instead`: what opsctl's own unit does."""

    id: str
    setting: str
    risk: str
    instead: str


@dataclass(frozen=True)
class Imported:
    """`service` is one entry of `sglang_services`, None if anything is wrong (`problems`). Secrets
    in it are templates, `{{ vault_… }}`; `secrets` has their values by those variables' names."""

    name: str
    service: dict[str, Any] | None
    secrets: Mapping[str, str] = field(repr=False)
    notes: tuple[Note, ...] = ()
    problems: tuple[Problem, ...] = ()
    risks: tuple[Risk, ...] = ()
    versions: tuple[str, ...] = ()  # those that take every flag, where the version was not told


@dataclass
class Report:
    """Collects what is told on the way from a text to a description."""

    notes: list[Note] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    risks: list[Risk] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # texts that may be secrets: never shown
    exact: bool = False  # of a process: whatever reads like a placeholder is its value

    def note(self, kind: str, what: str, why: str) -> None:
        if (one := Note(kind, what, why)) not in self.notes:
            self.notes.append(one)

    def refuse(self, message: str, **where: str) -> None:
        if (one := Problem(message, **where)) not in self.problems:
            self.problems.append(one)


@dataclass(frozen=True)
class Mount:
    """A folder of the host at a place in a container. `source` is None for a volume whose folder
    on the host the text does not tell."""

    source: str | None
    target: str


@dataclass
class Container:
    """What a container changes about a command: where its paths and ports are on the host."""

    image: str = ""
    mounts: list[Mount] = field(default_factory=list)
    ports: list[tuple[str, int, int]] = field(default_factory=list)  # address, outside, inside
    host_network: bool = False
    gpus: tuple[int, ...] | None = None  # None: all, or not said
    used: set[str] = field(default_factory=set)  # targets of mounts that a flag names a path in


@dataclass
class Launch:
    """One process as a text would start it: every word exact, nothing left to expand.

    A part that the text does not tell stands in a word as a mark (marks.py). `said`: variables
    that the text itself sets, in contrast to those that a running process merely has.
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    said: set[str] | None = None  # None: all of env
    cwd: str | None = None
    user: str | None = None
    root: str | None = None  # environment that was activated
    container: Container | None = None
    name: str | None = None
    drain: int | None = None  # seconds that a stop may take, where a unit says so
    version: str = ""  # of the engine, as the host has it
    packages: list[str] = field(default_factory=list)  # of the engine: "sglang[all]==0.5.9"
    folders: frozenset[str] | None = None  # words that are folders in cwd; None: nobody looked
    wrapped: list[str] = field(default_factory=list)  # nohup, tmux, a shell that does not exec …
