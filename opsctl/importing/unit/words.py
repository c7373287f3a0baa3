"""Words of ExecStart= and Environment=, by systemd's own quoting (systemd.syntax(7),
systemd.service(5)): not a shell's. Variables are expanded only where a whole word or ${…} names
one, and what is not set becomes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from opsctl.importing.marks import mark
from opsctl.importing.unit.envfile import valid

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
# ${NAME} up to the next brace, whatever stands in it but a colon; $$ is a dollar.
_BRACED = re.compile(r"\$\$|\$\{([^:}]*)(\}|\Z)")
_BLANK = " \t\n\r"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Of systemd 252, and D of later ones; any other letter or digit after a % spoils the setting.
_SPECIFIERS = frozenset("aAbBcCdDEfgGhHiIjJlLmMnNopPqrRsStTuUvVwWyY")


class Malformed(ValueError):
    """systemd itself would not take it."""


def split(text: str) -> list[str]:
    """Raises Malformed: a quote that is never closed."""
    return [word for word, _ in _split(text)]


def arguments(text: str) -> list[str] | None:
    """Those of ExecStart=, where \\; is a semicolon; None if a bare one separates commands."""
    found = _split(text)
    bare = [raw for _, raw in found]
    if ";" in bare[:-1]:
        return None
    found = found[:-1] if bare[-1:] == [";"] else found
    return [";" if raw == "\\;" else word for word, raw in found]


def listed(text: str) -> tuple[list[str], str]:
    """The words of Environment= and its like; and the rest from the first that is malformed on
    (an open quote, an unknown escape), which systemd ignores."""
    found: list[str] = []
    at = 0
    while (at := _begin(text, at)) < len(text):
        try:
            word, end = _word(text, at, _strict)
        except Malformed:
            return found, text[at:]
        found.append(word)
        at = end
    return found, ""


def fields(value: str) -> list[str]:
    """What becomes of $NAME as a word of its own: quotes count, a backslash only hides the next
    character from them, and nothing is malformed."""
    if "\0" in value:
        return [value]
    return [word for word, _ in _split(value, _hiding, closed=False)]


Escape = Callable[[str, int], tuple[bytes, int]]


def _split(
    text: str, escape: Escape | None = None, *, closed: bool = True
) -> list[tuple[str, str]]:
    """(word, as it stands in the text)"""
    found: list[tuple[str, str]] = []
    at = 0
    while (at := _begin(text, at)) < len(text):
        word, end = _word(text, at, escape or _lenient, closed=closed)
        found.append((word, text[at:end].rstrip(_BLANK)))
        at = end
    return found


def _begin(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _word(text: str, at: int, escape: Escape, *, closed: bool = True) -> tuple[str, int]:
    """The word there, and where it ends. A byte that is no UTF-8 becomes a surrogate."""
    quote, raw = "", bytearray()
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            piece, at = escape(text, at)
            raw += piece
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif not quote and char in _BLANK:
            break
        else:
            raw += _bytes(char)
    if quote and closed:
        raise Malformed(f"a quote ({quote}) is never closed")
    return raw.decode("utf-8", "surrogateescape"), at


def _bytes(char: str) -> bytes:
    return char.encode("utf-8", "surrogatepass" if char < "\udc80" else "surrogateescape")


def _strict(text: str, at: int) -> tuple[bytes, int]:
    """A C escape. Raises Malformed: there is none of that name."""
    if match := _CODE.match(text, at):
        digits = match[1] or match[2] or match[3]
        code = int(digits, 16) if digits else int(match[4], 8)
        if code == 0 or (match[4] and code > 255) or (match[3] and not _character(code)):
            raise Malformed("an escape names no character")
        if match[2] or match[3]:
            return chr(code).encode("utf-8", "surrogatepass"), match.end()
        return bytes([code]), match.end()
    if at < len(text) and text[at] in _NAMED:
        return _NAMED[text[at]].encode(), at + 1
    raise Malformed("an escape that nothing stands for")


def _character(code: int) -> bool:
    return code <= 0x10FFFF and valid(chr(code))


def _lenient(text: str, at: int) -> tuple[bytes, int]:
    """In ExecStart= an escape that nothing stands for is text."""
    try:
        return _strict(text, at)
    except Malformed:
        return b"\\" + b"".join(map(_bytes, text[at : at + 1])), at + 1


def _hiding(text: str, at: int) -> tuple[bytes, int]:
    return b"".join(map(_bytes, text[at : at + 1])), at + 1


def expand(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The arguments: $NAME alone is split into words, ${NAME} is put in as it is."""
    found: list[str] = []
    for word in words:
        if (name := _alone(word)) is not None:
            found += fields(env.get(name, ""))
        else:
            found.append(_BRACED.sub(lambda m: _put(m, env), word))
    return found


def used(words: Sequence[str]) -> list[tuple[str, str]]:
    """(name, as it is written) of every variable that `expand` puts in. What stands there may be
    no name of a variable at all (`$DIR/m`): then nothing is put in."""
    found: list[tuple[str, str]] = []
    for word in words:
        if (name := _alone(word)) is not None:
            found.append((name, word))
        else:
            found += [(m[1], m[0]) for m in _BRACED.finditer(word) if m[2]]
    return found


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _alone(word: str) -> str | None:
    """systemd takes all of a word that begins with a dollar for the name of a variable."""
    return word[1:] if word.startswith("$") and word[1:2] not in ("{", "$") else None


def _put(match: re.Match[str], env: Mapping[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    return env.get(match[1], "") if match[2] else match[0]


def specifiers(text: str, known: Mapping[str, str]) -> str:
    """%i and the like; those that depend on the host become marks. Raises Malformed: there is no
    such specifier."""

    def put(match: re.Match[str]) -> str:
        letter = match[1]
        if letter == "%":
            return "%"
        if letter in known:
            return known[letter]
        if letter in _SPECIFIERS:
            return mark("specifier", match[0])
        if letter.isascii() and letter.isalnum():
            raise Malformed(f"{match[0]} is no specifier of systemd; a percent sign is written %%")
        return match[0]

    return re.sub(r"%(.)", put, text, flags=re.DOTALL)


def assignments(text: str, known: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """NAME=VALUE of one Environment= line; and the words that systemd would ignore."""
    found: dict[str, str] = {}
    words, rest = listed(text)
    wrong = [rest] if rest else []
    for word in words:
        try:
            name, equals, value = specifiers(word, known).partition("=")
        except Malformed:
            name, equals, value = word, "", ""
        if equals and is_name(name) and valid(value):
            found[name] = value
        else:
            wrong.append(word)
    return found, wrong


def logical(text: str) -> list[str]:
    """Lines, with those that a backslash continues joined, without comments: also within them."""
    found: list[str] = []
    held: str | None = None
    for line in re.split(r"\r\n|\n|\r", text):
        stripped = line.strip(_BLANK)
        if stripped.startswith(("#", ";")):
            continue
        if held is None and not stripped:
            continue
        joined = (held or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held = f"{joined[:-1]} "
        else:
            found.append(joined.strip(_BLANK))
            held = None
    return [*found, held.strip(_BLANK)] if held is not None else found


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
