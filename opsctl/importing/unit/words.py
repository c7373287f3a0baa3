"""Words of ExecStart= and Environment=, by systemd's own quoting (systemd.syntax(7),
systemd.service(5)): not a shell's. Variables are expanded only where a whole word or ${…} names
one, and what is not set becomes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opsctl.importing.marks import mark

_NAMED = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3})")
_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_WORD_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


class Malformed(ValueError):
    """systemd itself would not take it."""


def split(text: str) -> list[str]:
    """Raises Malformed: a quote that is never closed."""
    return [word for word, _ in _split(text)]


def arguments(text: str) -> list[str] | None:
    """Those of ExecStart=, where \\; is a semicolon; None if a bare one separates commands."""
    found = _split(text)
    if any(word == ";" and not quoted for word, quoted in found):
        return None
    return [";" if word == "\\;" and not quoted else word for word, quoted in found]


def _split(text: str) -> list[tuple[str, bool]]:
    """(word, whether it was quoted as a whole)"""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if text[at] in " \t\n\r":
            at += 1
            continue
        word, at, quoted = _word(text, at)
        found.append((word, quoted))
    return found


def _word(text: str, at: int) -> tuple[str, int, bool]:
    held, quote, quoted = "", "", text[at] in "'\""
    raw = bytearray()
    while at < len(text):
        char = text[at]
        if char == "\\":
            piece, at = _escape(text, at + 1)
            raw += piece
            continue
        at += 1
        if quote:
            if char == quote:
                quote = ""
            else:
                raw += char.encode("utf-8", "surrogateescape")
        elif char in "'\"":
            quote = char
        elif char in " \t\n\r":
            break
        else:
            raw += char.encode("utf-8", "surrogateescape")
    if quote:
        raise Malformed(f"a quote ({quote}) is never closed")
    held = raw.decode("utf-8", "replace")
    return held, at, quoted


def _escape(text: str, at: int) -> tuple[bytes, int]:
    if match := _CODE.match(text, at):
        if match[1]:
            return bytes([int(match[1], 16)]), match.end()
        if match[4]:
            return bytes([int(match[4], 8) & 0xFF]), match.end()
        code = int(match[2] or match[3], 16)
        if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise Malformed("an escape names no character")
        return chr(code).encode(), match.end()
    if at < len(text) and text[at] in _NAMED:
        return _NAMED[text[at]].encode(), at + 1
    if at < len(text):
        return b"\\" + text[at].encode("utf-8", "surrogateescape"), at + 1
    return b"\\", at


def expand(words: Sequence[str], env: Mapping[str, str], *, first: bool = True) -> list[str]:
    """The arguments: $NAME alone is split at its blanks, ${NAME} is put in as it is."""
    found: list[str] = []
    for at, word in enumerate(words):
        match = _WORD_VARIABLE.fullmatch(word)
        if match and at > 0:
            found += _fields(env.get(match[1], ""))
        else:
            found.append(_BRACED.sub(lambda m: _put(m, env), word))
    return found


def _put(match: re.Match[str], env: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    if match[1]:
        return env.get(match[1], "")
    return match[0]  # $NAME within a word is left alone


def _fields(value: str) -> list[str]:
    if "\0" in value:
        return [value]
    try:
        return split(value)
    except Malformed:
        return value.split()


def specifiers(text: str, known: Mapping[str, str]) -> str:
    """%i and the like; those that depend on the host become marks."""

    def put(match: re.Match[str]) -> str:
        letter = match[1]
        if letter == "%":
            return "%"
        return known.get(letter, mark("specifier", match[0]))

    return re.sub(r"%(.)", put, text)


def assignments(text: str, known: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """NAME=VALUE of one Environment= line; and the words that systemd would ignore."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    for word in split(text):
        name, equals, value = specifiers(word, known).partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found[name] = value
        else:
            wrong.append(word)
    return found, wrong


def logical(text: str) -> list[str]:
    """Lines, with those that a backslash continues joined, without comments: also within them."""
    found: list[str] = []
    held: str | None = None
    for line in text.split("\n"):
        stripped = line.strip(" \t\r\f")
        if stripped.startswith(("#", ";")):
            continue
        if held is None and not stripped:
            continue
        joined = line if held is None else f"{held} {line.lstrip()}"
        if line.endswith("\\"):
            held = joined[:-1]
        else:
            found.append(joined.strip())
            held = None
    return [*found, held.strip()] if held is not None else found


def command(unit: str) -> list[str]:
    """The arguments of the last ExecStart= of one of opsctl's own units."""
    lines = [one.partition("=")[2] for one in logical(unit) if one.startswith("ExecStart=")]
    words = [specifiers(word, {}) for word in split(lines[-1])]
    return expand(words, {})


def environment(unit: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in logical(unit):
        if line.startswith("Environment="):
            found |= assignments(line.partition("=")[2], {})[0]
    return found
