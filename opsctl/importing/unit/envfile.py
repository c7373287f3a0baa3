"""EnvironmentFile=, by systemd's own rules: neither a shell's nor docker's.

tests/unit/importing/systemd_252.json holds what systemd 252 made of each kind of line, and
tests/lab/test_unit_real.py asks it again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK, _LINE_END = " \t\n\r", "\n\r"
_COMMENT = re.compile(r"(?:\\[\s\S]?|[^\\\n\r])*")  # a backslash continues even a comment
_KEY = re.compile(r"[^=\n\r]*")
# A lone surrogate, or a code that stands for no character in any text.
_NO_CHARACTER = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef" + "".join(chr(n << 16 | c) for n in range(17) for c in
    (0xFFFE, 0xFFFF)) + "]"
)  # fmt: skip


@dataclass
class EnvFile:
    """`values`: the variables. `ignored`: what stands before a `=` and is no name of a variable.
    `refused`: why systemd takes nothing of the file, "" if it takes it."""

    values: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    refused: str = ""


def read(text: str) -> EnvFile:
    if "\0" in text:
        return EnvFile(refused="holds a NUL")
    found, at = EnvFile(), 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
        elif text[at] in "#;":
            at = _COMMENT.match(text, at).end()  # type: ignore[union-attr]
        else:
            name = _KEY.match(text, at)[0]  # type: ignore[index]
            at += len(name)
            if text[at : at + 1] != "=":
                continue
            value, at = _value(text, at + 1)
            name = name.rstrip(_BLANK)
            if not valid(name + value):
                return EnvFile(refused="holds bytes that are no UTF-8 text")
            if _NAME.fullmatch(name):
                found.values[name] = value
            else:
                found.ignored.append(name)
    return found


def valid(text: str) -> bool:
    """Whether it is UTF-8 as systemd judges it, which takes no other bytes into a variable."""
    return _NO_CHARACTER.search(text) is None


def _value(text: str, at: int) -> tuple[str, int]:
    """A quote is one before the first bare character only: in the middle it is text."""
    held, kept, bare = "", 0, False  # blanks after `kept` characters count only if more follows
    while at < len(text):
        char = text[at]
        at += 1
        if char in _LINE_END:
            break
        if char == "\\":
            held += text[at : at + 1].strip(_LINE_END)
            kept, bare, at = len(held), True, at + 1
        elif char in "'\"" and not bare:
            piece, at = _quoted(text, at, char)
            held += piece
            kept = len(held)
        elif bare or char not in _BLANK:
            held, bare = held + char, True
            kept = len(held) if char not in _BLANK else kept
    return held[:kept], at


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    """Across lines, and to the end of the file if it is never closed."""
    held = ""
    while at < len(text) and text[at] != quote:
        if text[at] == "\\" and quote == '"':
            following = text[at + 1 : at + 2]
            held += "" if following in ("", "\n") else _unescaped(following)
            at += 2
        else:
            held += text[at]
            at += 1
    return held, at + 1


def _unescaped(char: str) -> str:
    return char if char in '"\\`$' else f"\\{char}"
