"""Words → the texts that a command would get, as far as the text itself tells them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opsctl.importing.marks import mark
from opsctl.importing.shell.words import Lit, Run, Var, Word

_BRACES = re.compile(r"\{([^{}\s]*+)\}")
_PATTERN = re.compile(r"[*?]|\[[^\[\]]*+\]")
_DEEPEST = 20
_WHERE = re.compile(r"\$\([ \t]*pwd[ \t]*\)|`[ \t]*pwd[ \t]*`")


@dataclass
class Scope:
    """Variables that are known, arrays too. `exported` go on to commands; `arguments` is what the
    script itself was called with, None if that is not known. `assumed`: the defaults that were
    taken for what is not known; copies of a scope share it."""

    values: dict[str, str | list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    arguments: list[str] | None = None
    cwd: str | None = None
    assumed: dict[str, str] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        named = self.values.items()
        return {n: v for n, v in named if n in self.exported and isinstance(v, str)}


def expand(word: Word, scope: Scope) -> list[str]:
    """The fields that it becomes: none, one, or several."""
    if _nothing(word, scope):
        return []
    fields: list[str] = []
    now: str | None = None
    for part in word.parts:
        pieces, splits = _part(part, scope, first=now is None and not fields)
        if isinstance(part, Lit) or not splits:
            if not pieces:
                continue
            now = (now or "") + pieces[0]
            for piece in pieces[1:]:
                fields.append(now)
                now = piece
            continue
        joined, rest = _split(pieces)
        for i, piece in enumerate(rest):
            if (i > 0 or joined[0]) and now is not None:
                fields.append(now)
                now = None
            now = (now or "") + piece
        if joined[1] and now is not None:
            fields.append(now)
            now = None
    return [*fields, now] if now is not None else fields


def _nothing(word: Word, scope: Scope) -> bool:
    """ "${A[@]}" of an empty array, "$@" of no arguments: no field at all, unlike "$A"."""
    rest = [p for p in word.parts if not (isinstance(p, Lit) and p.quoted and not p.text)]
    if len(rest) != 1 or not isinstance(part := rest[0], Var) or part.op not in ("", "+"):
        return False
    every = part.name in ("@", "*") or part.index in ("@", "*")
    return every and part.op == "" and _value(part, scope) == []


def expand_one(word: Word, scope: Scope) -> str:
    """As the value of an assignment: nothing is split, no pattern is filled in."""
    found = ""
    for i, part in enumerate(word.parts):
        if isinstance(part, Lit):
            found += _home(part, scope) if i == 0 else part.text
        else:
            found += " ".join(_part(part, scope, first=False)[0])
    return found


def _part(part: Lit | Var | Run, scope: Scope, *, first: bool) -> tuple[list[str], bool]:
    """(texts, whether blanks in them split the word)"""
    if isinstance(part, Lit):
        return [_literal(part, scope, first)], False
    if isinstance(part, Run):
        here = scope.cwd or ""
        if _WHERE.fullmatch(part.written) and re.fullmatch(r"\S+", here):
            return [here], False
        return [mark(part.kind, part.written)], False
    found = _variable(part, scope)
    return found, not part.quoted


def _literal(part: Lit, scope: Scope, first: bool) -> str:
    if part.quoted:
        return part.text
    text = _home(part, scope) if first else part.text
    if "\0" not in text:
        if re.fullmatch(r"\[[A-Za-z_ -]+\]", text):
            return mark("placeholder", text)
        if any("," in inner or ".." in inner for inner in _BRACES.findall(text)):
            return mark("expansion", text)
        if _PATTERN.search(text):
            return mark("glob", text)
    return text


def _home(part: Lit, scope: Scope) -> str:
    text = part.text
    if part.quoted or not text.startswith("~"):
        return text
    head, slash, rest = text.partition("/")
    home = scope.values.get("HOME") if head == "~" else None
    return (home if isinstance(home, str) else mark("home", head)) + slash + rest


def _variable(part: Var, scope: Scope) -> list[str]:
    value = _value(part, scope)
    op, empty = part.op.lstrip(":"), part.op.startswith(":")
    unset = value is None or (empty and value in ("", []))
    if op in ("-", "="):
        if not unset:
            return _fields(value)
        default = _word(part.word, scope)
        if not (part.name.isdigit() and scope.arguments is not None):
            scope.assumed.setdefault(part.name, " ".join(default))
        if op == "=" and len(default) == 1:
            scope.values[part.name] = default[0]
        return default
    if op == "+":
        return [] if unset else _word(part.word, scope)
    if value is None:
        kind = "required" if op == "?" else "argument" if part.name.isdigit() else "variable"
        return [mark(kind, part.name)]
    return _fields(value)


def _word(word: Word | None, scope: Scope) -> list[str]:
    return [expand_one(word, scope)] if word is not None else [""]


def _fields(value: str | list[str] | None) -> list[str]:
    return list(value) if isinstance(value, list) else [value or ""]


def _value(part: Var, scope: Scope) -> str | list[str] | None:
    if part.name in ("@", "*"):
        return scope.arguments if scope.arguments is not None else []
    if part.name.isdigit() and part.name != "0" and scope.arguments is not None:
        at = int(part.name) - 1
        return scope.arguments[at] if at < len(scope.arguments) else None
    if part.name == "PWD" and scope.cwd is not None:
        return scope.cwd
    found = scope.values.get(part.name)
    if isinstance(found, list) and part.index not in ("@", "*"):
        at = int(part.index) if part.index.isdigit() else 0
        return found[at] if at < len(found) else None
    return found


def _split(texts: list[str]) -> tuple[tuple[bool, bool], list[str]]:
    """Unquoted texts at their blanks; and whether there was a blank at the start, at the end. A
    mark is never split: nobody knows what is in it."""
    pieces: list[str] = []
    for text in texts:
        pieces += re.findall(r"(?:\0[^\0]*\0|[^\s\0])+", text)
    first, last = (texts[0], texts[-1]) if texts else ("", "")
    return (first[:1].isspace(), last[-1:].isspace()), pieces
