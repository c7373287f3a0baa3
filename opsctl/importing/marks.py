"""Parts of words that the text alone does not tell.

A mark stands between two NULs, which no argument, variable or file name can hold; so it can never
be mistaken for text, and whoever meets one knows that the value is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARK = re.compile("\0([a-z]+):([^\0]*)\0")

# kind of mark → what to say of it, and what to do
REASONS = {
    "variable": ("is a variable that the text does not set", "give it with --var {name}=VALUE"),
    "argument": ("is an argument of the script", "give it with --var {name}=VALUE"),
    "command": ("is what another command prints; no command is run here", "write what it prints"),
    "arithmetic": ("is computed by the shell", "write the number"),
    "expansion": ("is an expansion that only a shell does", "write what it becomes"),
    "glob": ("is a pattern that the shell fills in from the files it finds", "write what it means"),
    "folder": (
        "is a path from the folder of the command or file",
        "write it in full, or give that folder: --cwd DIR",
    ),
    "home": ("is somebody's home", "give it with --var HOME=/home/USER"),
    "placeholder": ("is a placeholder", "write the real value"),
    "specifier": ("is a specifier of systemd that depends on the host", "write what it becomes"),
    "required": ("is a variable that must be set", "give it with --var {name}=VALUE"),
}


def mark(kind: str, text: str) -> str:
    return f"\0{kind}:{text.replace(chr(0), '')}\0"


# Around what a sentence of ours takes over from the text: it alone is masked as somebody's words.
_OPEN, _CLOSE = "\x0e", "\x0f"
_THEIRS = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def theirs(text: str) -> str:
    """A part of the imported text, for a sentence of ours."""
    return f"{_OPEN}{text.replace(_OPEN, '').replace(_CLOSE, '')}{_CLOSE}"


def sorted_out(sentence: str, ours: Callable[[str], str], others: Callable[[str], str]) -> str:
    """The sentence without the signs around their parts, each part changed by its own function."""
    pieces = _THEIRS.split(sentence)
    return "".join(
        (others if n % 2 else ours)(piece.replace(_OPEN, "").replace(_CLOSE, ""))
        for n, piece in enumerate(pieces)
    )


def marks(word: str) -> list[tuple[str, str]]:
    """(kind, text) of every mark in it."""
    return _MARK.findall(word)


def whole(word: str) -> bool:
    """Whether everything in it is known."""
    return "\0" not in word


def plain(word: str) -> str:
    """As it was written, for messages."""
    return _MARK.sub(r"\2", word)


_PLACEHOLDER = re.compile(
    r"^(<[^<>]*>|\[[A-Za-z][A-Za-z _-]*\]|\{[A-Za-z][A-Za-z _-]*\}?|ORG/MODEL|\.\.\.)$"
    r"|<[a-z][\w-]+>|(?<![A-Za-z0-9])x{3,}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])[xX]{2,3}(\.[xX]{1,3}){3}|(?<![A-Za-z])(YOUR|your)[_-]|/path/to/"
)


def placeholder(word: str) -> bool:
    """Whether documentation means it to be replaced."""
    return whole(word) and _PLACEHOLDER.search(word) is not None


def unknown_parts(word: str) -> list[tuple[str, str]]:
    """(what it is, hint) of every part of a word that the text does not tell."""
    found = []
    for kind, written in marks(word):
        what, hint = REASONS.get(kind, ("is not known", ""))
        shown = f"${written}" if kind in ("variable", "argument", "required") else written
        found.append((f"{theirs(shown)} {what}", hint.format(name=theirs(written))))
    return found
