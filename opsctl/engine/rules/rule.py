"""What a rule is, and how one is written.

A rule says of which releases it is true, when it holds, and what the engine then does:

    refuse   the engine ends before it loads anything
    rewrite  it goes on with another value than is written, or than the flag's default
    ignored  it reads the flag and does nothing with it
    later    it goes on, and fails or answers wrongly only when the model is there

Each is a small function of what is known: None or False where it does not hold or cannot be told;
True, or the new values of a rewrite, or the names of the flags that are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.engine.advisories.versions import Range, parse
from opsctl.engine.rules.view import View

REFUSE, REWRITE, IGNORED, LATER = "refuse", "rewrite", "ignored", "later"
KINDS = {
    REFUSE: "the engine refuses to start",
    REWRITE: "the engine goes on with another value",
    IGNORED: "the flag has no effect",
    LATER: "it fails, or answers wrongly, once the model is loaded",
}
Judge = Callable[[View], "Mapping[str, Any] | Sequence[str] | bool | None"]


@dataclass(frozen=True)
class Rule:
    """`flags`: those that it is about ("lora-*": all of them that begin so); a problem is shown at
    the first that is written.
    `when`, `why`: for people, the latter with values: "{page-size}"."""

    id: str
    theme: str
    kind: str
    versions: str
    span: Range
    flags: tuple[str, ...]
    when: str
    why: str
    judge: Judge


class Theme:
    """The rules of one file, in the order in which they are asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: list[Rule] = []

    def rule(
        self, kind: str, id: str, flags: str, when: str, why: str, versions: str = ">=0.5.2"
    ) -> Callable[[Judge], Judge]:
        """`flags`: names with blanks between them."""

        def add(judge: Judge) -> Judge:
            names = tuple(flags.split())
            made = Rule(id, self.name, kind, versions, parse(versions), names, when, why, judge)
            self.rules.append(made)
            return judge

        return add
