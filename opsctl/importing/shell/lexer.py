"""Text → words and operators, by the rules of POSIX and what bash adds to quoting."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from opsctl.importing.shell.words import Lit, Operator, Run, Var, Word

_OPERATORS = (
    *("<<<", "<<-", "&>>", "&&", "||", ";;", "<<", ">>", "<&", ">&", "<>", ">|", "&>"),
    *(";", "&", "|", "<", ">", "(", ")", "\n"),
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])(\[[^]]*\])?(:?[-=+?])?")
# <node-rank>, <your api key>: a person is meant to replace it; a shell would open files.
_PLACEHOLDER = re.compile(r"<(?:[A-Za-z_][A-Za-z0-9_.| -]*|[0-9]+(?:\|[0-9]+)+)>")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_MOST = 1 << 20  # characters
_DEEPEST = 20  # ${A:-${B:-…}}


class Unreadable(ValueError):
    """The text is no complete shell text; the message says where and why."""


class Lexer:
    def __init__(self, text: str, depth: int = 0) -> None:
        if len(text) > _MOST:
            raise Unreadable("it is longer than any launch command (1 MiB)")
        if depth > _DEEPEST:
            raise Unreadable("expansions stand in each other too deeply")
        self.text, self.at, self.depth = text, 0, depth
        self.breaks = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int | None = None) -> int:
        return bisect_left(self.breaks, self.at if at is None else at) + 1

    def tokens(self) -> Iterator[Word | Operator]:
        while (one := self._next()) is not None:
            yield one

    def _next(self) -> Word | Operator | None:
        self._blank()
        if self.at >= len(self.text):
            return None
        start = self.at
        number = re.compile(r"[0-9]+(?=[<>])").match(self.text, self.at)
        if number:
            self.at = number.end()
        elif _PLACEHOLDER.match(self.text, self.at):
            return self._word()
        if not number and self.text.startswith(("<(", ">("), self.at):
            return self._substituted()
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return Operator(operator, start, number[0] if number else "")
        return self._word()

    def _substituted(self) -> Word:
        """<(…), >(…): a name of a file that stands for another command."""
        start = self.at
        self._closed("(", ")", start + 1)
        return Word((Run("command", self.text[start : self.at]),), start, self.at)

    def _blank(self) -> None:
        """Blanks, continued lines, comments."""
        while self.at < len(self.text):
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _word(self) -> Word:
        start = self.at
        parts: list[Lit | Var | Run] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|()" or char == ">":
                break
            if char == "<":
                placeholder = _PLACEHOLDER.match(self.text, self.at)
                if not placeholder:
                    break
                self.at = placeholder.end()
                parts.append(Run("placeholder", placeholder[0]))
                continue
            parts += self._part(char)
        return Word(tuple(parts), start, self.at)

    def _part(self, char: str) -> list[Lit | Var | Run]:
        if char == "\\":
            return self._escaped()
        if char == "'":
            return [Lit(self._single(), True)]
        if char == '"':
            return self._double()
        if char in "$`":
            return [self._dollar(False)]
        end = self.at + 1
        while end < len(self.text) and self.text[end] not in " \t\r\n;&|()<>\\'\"$`":
            end += 1
        found = self.text[self.at : end]
        self.at = end
        return [Lit(found)]

    def _escaped(self) -> list[Lit | Var | Run]:
        self.at += 2
        if self.at > len(self.text):
            self.at = len(self.text)
            return []  # a last backslash with nothing after it: a continuation that was cut off
        char = self.text[self.at - 1]
        return [] if char == "\n" else [Lit(char, True)]

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable(f"a single quote in line {self.line()} is never closed")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def _double(self) -> list[Lit | Var | Run]:
        opened = self.line()
        self.at += 1
        parts: list[Lit | Var | Run] = [Lit("", True)]
        held = ""
        while True:
            if self.at >= len(self.text):
                raise Unreadable(f"a double quote in line {opened} is never closed")
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return [*parts, Lit(held, True)] if held else parts
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                following = self.text[self.at + 1]
                held += "" if following == "\n" else following
                self.at += 2
            elif char in "$`":
                if held:
                    parts.append(Lit(held, True))
                    held = ""
                parts.append(self._dollar(True))
            else:
                held += char
                self.at += 1

    def _dollar(self, quoted: bool) -> Lit | Var | Run:
        start, text = self.at, self.text
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise Unreadable(f"a backquote in line {self.line()} is never closed")
            self.at = end + 1
            return Run("command", text[start : self.at])
        if text.startswith("$((", start) and (end := text.find("))", start)) >= 0:
            self.at = end + 2
            return Run("arithmetic", text[start : self.at])
        if text.startswith("$(", start):
            self._closed("(", ")", start + 1)
            return Run("command", text[start : self.at])
        if text.startswith("${", start):
            return self._braced(start, quoted)
        if text.startswith("$'", start) and not quoted:
            return self._ansi()
        if text.startswith('$"', start) and not quoted:
            self.at += 1
            return Lit("", True)  # translated text: what follows is an ordinary double quote
        name = _NAME.match(text, start + 1)
        self.at = name.end() if name else start + 1
        return Var(name[0], quoted, written=name[0]) if name else Lit("$", True)

    def _braced(self, start: int, quoted: bool) -> Var | Run:
        self._closed("{", "}", start + 1)
        inner = self.text[start + 2 : self.at - 1]
        match = _BRACED.match(inner)
        if match is None:
            return Run("expansion", self.text[start : self.at])
        name, index, op = match[1], match[2] or "", match[3] or ""
        rest = inner[match.end() :]
        if rest and not op:
            return Run("expansion", self.text[start : self.at])
        word = None
        if op:
            inside = Lexer(f'"{_requoted(rest)}"' if quoted else rest, self.depth + 1)
            word = inside.rest_as_word()
        return Var(name, quoted, op, word, index.strip("[]"), self.text[start : self.at])

    def rest_as_word(self) -> Word:
        """All of the text as one word, blanks and operators too."""
        parts: list[Lit | Var | Run] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|()<>":
                parts.append(Lit(char))
                self.at += 1
            else:
                parts += self._part(char)
        return Word(tuple(parts))

    def _closed(self, opening: str, closing: str, at: int) -> None:
        """Moves past the bracket that closes the one at `at`, over quotes and nested ones."""
        depth, quote, i = 0, "", at
        while i < len(self.text):
            char = self.text[i]
            if char == "\\" and quote != "'":
                i += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    self.at = i + 1
                    return
            i += 1
        raise Unreadable(f"a ${opening} in line {self.line(at)} is never closed")

    def _ansi(self) -> Lit:
        """$'…' with the escapes of C."""
        self.at += 2
        found = ""
        while self.at < len(self.text) and self.text[self.at] != "'":
            char = self.text[self.at]
            self.at += 1
            if char == "\\" and self.at < len(self.text):
                char = self._ansi_escape()
            found += char
        self.at += 1
        if "\0" in found:
            raise Unreadable("it holds a NUL character, which no argument can")
        return Lit(found, True)

    def _ansi_escape(self) -> str:
        match = re.compile(
            r"x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}"
        ).match(self.text, self.at)
        if match:
            self.at = match.end()
            code = int(match[0], 8) if match[0][0] in "01234567" else int(match[0][1:], 16)
            return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        char = self.text[self.at]
        self.at += 1
        return _ANSI.get(char, char if char in "\\'\"?" else "\\" + char)


def _requoted(text: str) -> str:
    """The word of "${A:-…}" stands in double quotes already; inner quotes are its own."""
    return re.sub(r'(?<!\\)"', "", text)
