"""What a word of a shell is made of before anything is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Lit:
    """Text. `quoted`: neither split nor a pattern."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Var:
    """$NAME or ${NAME<op>word}. `op`: "", or one of - :- = := + :+ ? :? and, for what no text
    tells, "other" (cut, replaced, counted). `index`: "" or what stood in its brackets."""

    name: str
    quoted: bool = False
    op: str = ""
    word: Word | None = None
    index: str = ""
    written: str = ""


@dataclass(frozen=True)
class Run:
    """$(…), `…` or $((…)): what only a run would tell. `kind` is a kind of mark."""

    kind: str
    written: str


@dataclass(frozen=True)
class Word:
    """`start`, `end`: where it stands in the text."""

    parts: tuple[Lit | Var | Run, ...] = field(default=())
    start: int = 0
    end: int = 0

    @property
    def bare(self) -> str | None:
        """Its text if it is one unquoted literal: only such a word is a keyword."""
        if len(self.parts) == 1 and isinstance(one := self.parts[0], Lit) and not one.quoted:
            return one.text
        return None


@dataclass(frozen=True)
class Operator:
    """`number`: the descriptor before a redirection, if one is written."""

    text: str
    start: int = 0
    number: str = ""
