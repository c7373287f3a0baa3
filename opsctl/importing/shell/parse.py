"""Words and operators → simple commands. What branches or loops is refused, not guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsctl.importing.shell.lexer import Lexer, Unreadable
from opsctl.importing.shell.words import Lit, Operator, Word

__all__ = ["Assignment", "Simple", "Unreadable", "commands"]

_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_REDIRECTS = {"<", ">", ">>", "<<<", "<&", ">&", "<>", ">|", "&>", "&>>"}
_BRANCHES = {
    *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac"),
    *("select", "function", "[[", "{", "}", "!", "coproc"),
}


@dataclass(frozen=True)
class Assignment:
    name: str
    value: Word | None  # None: an array
    array: tuple[Word, ...] = ()
    append: bool = False


@dataclass
class Simple:
    """One simple command. `before`, `after`: the operators around it ("" at an end of the text)."""

    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[str] = field(default_factory=list)
    before: str = ""
    after: str = ""
    line: int = 1


def commands(text: str) -> list[Simple]:
    """Raises Unreadable: the text is not complete, or it does more than run commands in a row."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.lexer = Lexer(text)
        self.tokens = list(self.lexer.tokens())
        self.at = 0
        self.found: list[Simple] = []
        self.now = Simple()

    def read(self) -> list[Simple]:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            if isinstance(token, Word):
                self._word(token)
            elif token.text in ("<<", "<<-"):
                raise Unreadable(
                    f"line {self._line(token)} has a here-document; import what it "
                    "writes, or the command alone"
                )
            elif token.text in _REDIRECTS:
                self._redirect(token)
            elif token.text in ("(", ")", ";;"):
                raise Unreadable(
                    f"line {self._line(token)} has a subshell, a function or a pattern ("
                    f"{token.text}); import the launch command alone"
                )
            else:
                self._end(token.text)
        self._end("")
        return self.found

    def _line(self, token: Word | Operator) -> int:
        return self.lexer.line(token.start)

    def _word(self, word: Word) -> None:
        if not self.now.words and not self.now.assignments:
            self.now.line = self._line(word)
        if not self.now.words:
            if (name := word.bare) in _BRANCHES:
                raise Unreadable(
                    f"line {self._line(word)} branches, loops or defines ({name}), which only a "
                    "run decides; import the launch command alone, or the running process"
                )
            if assignment := self._assignment(word):
                self.now.assignments.append(assignment)
                return
        self.now.words.append(word)

    def _assignment(self, word: Word) -> Assignment | None:
        first = word.parts[0] if word.parts else None
        if not isinstance(first, Lit) or first.quoted:
            return None
        match = _ASSIGNS.match(first.text)
        if match is None:
            return None
        rest = first.text[match.end() :]
        parts = ((Lit(rest),) if rest else ()) + word.parts[1:]
        if not parts and self._opens(word):
            return Assignment(match[1], None, self._array(), bool(match[2]))
        return Assignment(match[1], Word(parts, word.start, word.end), append=bool(match[2]))

    def _opens(self, word: Word) -> bool:
        """Whether a ( follows without a blank: the items of an array."""
        if self.at >= len(self.tokens):
            return False
        following = self.tokens[self.at]
        return (
            isinstance(following, Operator)
            and following.text == "("
            and following.start == word.end
        )

    def _array(self) -> tuple[Word, ...]:
        opened = self._line(self.tokens[self.at])
        self.at += 1
        items = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            if isinstance(token, Word):
                items.append(token)
            elif token.text == ")":
                return tuple(items)
            elif token.text != "\n":
                break
        raise Unreadable(f"the array in line {opened} is never closed")

    def _redirect(self, token: Operator) -> None:
        where = ""
        if self.at < len(self.tokens) and isinstance(word := self.tokens[self.at], Word):
            where = self.lexer.text[word.start : word.end]
            self.at += 1
        between = " " if where.startswith(("<(", ">(")) else ""
        self.now.redirects.append(f"{token.number}{token.text}{between}{where}")

    def _end(self, operator: str) -> None:
        if self.now.words or self.now.assignments:
            self.now.after = operator
            self.now.before = self.found[-1].after if self.found else ""
            self.found.append(self.now)
        self.now = Simple()
