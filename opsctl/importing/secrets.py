"""What is a secret, by its name and by its form; and which variable of a vault it moves to.

Once found, a secret's text stands in no description, note, problem or exception: `Vault.hide`
goes over every text that leaves the room.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from opsctl.engine import Flag
from opsctl.errors import Problem
from opsctl.importing.marks import sorted_out, theirs
from opsctl.importing.model import Note, Risk
from opsctl.importing.secretnames import by_name, many

_PREFIXED = (
    r"hf_[A-Za-z0-9_]{8,}|sk-[A-Za-z0-9_-]{16,}|(?<![\w-])sk-(?=[\w-]*[A-Z0-9])[\w-]{4,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{12,}|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{10,}"
    r"|nvapi-[\w-]{16,}|AIza[\w-]{30,}|hvs\.[\w-]{16,}|ya29\.[\w-]{16,}|gsk_[A-Za-z0-9]{16,}"
    r"|npm_[A-Za-z0-9]{20,}|[prs]k_(?:live|test)_[A-Za-z0-9]{8,}|dckr_pat_[\w-]{16,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}"
)
_FORM = re.compile(
    rf"{_PREFIXED}|(?<![\w-])eyJ[\w-]{{10,}}+(?:\.[\w-]++){{0,4}}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]*)"
    r"|(?<![A-Za-z0-9.])[Bb]earer\s++[^\s\"',;]{8,}"
    r"|(?<![A-Za-z0-9.])[Bb]asic\s++(?=[a-z]*[A-Z0-9+/=])[A-Za-z0-9+/]{12,}={0,2}"
    r"|https?://hooks\.\S+|https?://[^\s/]++/(?:api/)?webhooks?/\S+"
    r"|(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*+://(?:[^/\s:@]*+:[^/\s@]++|[^/\s:@]{12,}+)@"
    r"|(?i:(?<=[?&])[\w-]{0,40}(?:token|key|sig|signature|secret|passw(?:or)?d|auth))=[^\s&\"']{4,}"
)
# What chance makes: a run of such characters that is no path, no host and no name.
_RUN = re.compile(r"(?<![^\s\"'=:,;&?@(\[{])[A-Za-z0-9+/_~.-]{20,}+={0,2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Of these chance makes the values, and everybody may know them.
_PUBLIC = re.compile(r"(REVISION|COMMIT|SHA[0-9]*|DIGEST|HASH|CHECKSUM|UUID|DEVICES|(?<!KEY)_ID)$")
# A word that belongs to nothing is shown only where it can hardly be a secret.
_HARMLESS = re.compile(r"[^\n]{1,7}|[\d.,]{1,9}|[\u2012-\u2015-][^\s=]{0,40}|[\w.-]*/[\w./-]*|\s*")
# Of a variable: it says where a secret comes from, and holds none.
_REFERENCE = re.compile(r"\$\{[A-Za-z_]\w*\}|\$[A-Z]+(_[A-Z]+)+")
_MASK = "***"
_LEAST = 4  # shorter texts stand in ordinary words, and hiding them would garble every message
_WITHIN = 8  # a secret of fewer characters is looked for as a whole value only


def by_form(value: str, name: str = "") -> bool:
    """Whether it looks like a secret, whatever it is called; `name` says where chance is no sign
    of one (a revision, a digest)."""
    if _FORM.search(value):
        return True
    if _PUBLIC.search(re.sub(r"\W", "_", name.upper())):
        return False
    return any(_of_chance(found[0]) for found in _RUN.finditer(value))


def secret_flag(flag: Flag) -> bool:
    """Whether a flag's value is a secret by its name; tokens that are counted are none."""
    return flag.kind not in ("int", "size", "float", "switch", "onoff") and by_name(flag.name)


def shown(word: str) -> str:
    """A word that belongs to nothing, for a message: masked unless it can hardly be a secret."""
    if _HARMLESS.fullmatch(word) and not by_form(word):
        return repr(word)
    return f"a word of {len(word)} characters ({_MASK}: it may be a secret)"


def holds(text: str, secret: str) -> bool:
    """Whether a text tells a secret: whole, or within it in any usual spelling."""
    if len(secret) < _WITHIN:
        return len(secret) >= _LEAST and text == secret
    return any(spelling in text for spelling in _spellings(secret))


def _of_chance(run: str) -> bool:
    run = run.rstrip("=")
    if run.startswith(("/", "./", "../")):
        return False
    if _UUID.fullmatch(run):
        return True
    if any(_mixed(piece) for piece in re.split(r"[-_/.~]", run)):
        return True
    joined = re.sub(r"[-_/+]", "", run)
    return len(joined) >= 32 and len(run) - len(joined) < len(run) / 8 and _mixed(joined)


def _mixed(piece: str) -> bool:
    """Letters and digits in no order, which neither a word nor a number has."""
    if len(piece) < 20 or piece.isalpha() or not any(map(str.isalpha, piece)):
        return False
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", piece):
        return len(piece) >= 32
    kinds = ["a" if c.islower() else "A" if c.isupper() else "0" for c in piece]
    turns = sum(one != two for one, two in pairwise(kinds))
    return turns >= (0.3 if len(set(kinds)) == 3 or len(piece) >= 24 else 0.4) * (len(piece) - 1)


def _spellings(secret: str) -> tuple[str, ...]:
    return (
        secret,
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
    )


@dataclass
class Vault:
    """The secrets of one import, by the names of their variables."""

    service: str
    values: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    weak: set[str] = field(default_factory=set)  # templates of secrets that need a new value

    def keep(self, name: str, value: str) -> str:
        """The template that stands for it in the description."""
        self.hidden.add(value)
        stem = re.sub(r"[^a-z0-9]+", "_", f"{self.service}_{name}".lower()).strip("_")
        variable, n = f"vault_{stem}", 2
        while self.values.get(variable, value) != value:
            variable, n = f"vault_{stem}_{n}", n + 1
        self.values[variable] = value
        return template(variable)

    def reveal(self, value: Any) -> Any:
        """A part of a description with the secrets in place, to check what it renders to."""
        if isinstance(value, str):
            known = {template(name): text for name, text in self.values.items()}
            return known.get(value, value)
        if isinstance(value, Mapping):
            return {key: self.reveal(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.reveal(part) for part in value]
        return value

    def hide(self, text: str) -> str:
        """A sentence of ours with their parts masked. In those nothing is shown after a mask: what
        follows a secret may be the rest of it. Our own words are never taken for a secret."""
        return sorted_out(text, self._ours, self._theirs)

    def _ours(self, text: str) -> str:
        return self._masked(text, lambda match: _word_around(match) in vocabulary())

    def _theirs(self, text: str) -> str:
        before, found, after = self._masked(text, lambda _: False).partition(_MASK)
        return f"{before}{found}{' …' if after.strip() else ''}"

    def _masked(self, text: str, spared: Callable[[re.Match[str]], bool]) -> str:
        for secret in sorted(self.hidden, key=len, reverse=True):
            if len(secret) >= _LEAST and not _REFERENCE.fullmatch(secret):
                for spelling in filter(text.__contains__, _spellings(secret)):
                    text = re.sub(re.escape(spelling), lambda m: m[0] if spared(m) else _MASK, text)
        text = _FORM.sub(_MASK, text)
        return _RUN.sub(lambda m: _MASK if _of_chance(m[0]) else m[0], text)

    def hide_note(self, note: Note) -> Note:
        return Note(note.kind, self.hide(note.what), self.hide(note.why))

    def hide_risk(self, risk: Risk) -> Risk:
        return replace(risk, setting=self.hide(risk.setting))

    def hide_problem(self, problem: Problem) -> Problem:
        parts = {key: self.hide(text) for key, text in vars(problem).items()}
        return replace(problem, **{**parts, "value": self.hide(theirs(problem.value))})


@cache
def vocabulary() -> frozenset[str]:
    """The words of this room's own sentences: who masks them garbles a message, and hides nothing,
    since everybody can read them here."""
    texts = [file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("*.py")]
    said = (node.value for text in texts for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str))  # fmt: skip
    return frozenset(word for text in said for word in re.findall("[A-Za-z]+", text))


def _word_around(match: re.Match[str]) -> str:
    """The word in which a match stands; "" if it is no part of a single word."""
    if not (match[0].isascii() and match[0].isalpha()):
        return ""
    before = re.search("[A-Za-z]*$", match.string[: match.start()])
    after = re.match("[A-Za-z]*", match.string[match.end() :])
    return f"{before[0] if before else ''}{match[0]}{after[0] if after else ''}"


# A name, what parts it from its value, and the value: not the line after an empty one.
_NAMED = re.compile(
    r"(?<![\w.-])-*+([A-Za-z_][\w.-]*+)[\"']?(?![ \t]*=[ \t]*\r?\n)[\s=:\\]+"
    r"(?:\$?[\"'])?([^\s\"',;&|{}$\\/-][^\s\"',;&|}]*)"
)
_LISTED = re.compile(
    r"(?<![\w.-])([A-Za-z_][\w.-]*+)[\"'\\]{0,4}+\s{0,8}+[=:]\s{0,8}+[\"'\\]{0,4}+[\[{]([^\]}]{0,4000})"
)
_ITEM = re.compile(r"[^\s\"',:{}\[\]\\]+")
_PASSWORD = re.compile(r"://[^/\s:@]*+:([^/\s@]++)@|[Bb]earer\s++([^\s\"',;]{8,})")


def suspects(text: str) -> set[str]:
    """Everything in a text that stands after a name of a secret, however broken the text is."""
    found = {part for pair in _PASSWORD.findall(text) for part in pair if part}
    at = 0
    while (match := _NAMED.search(text, at)) is not None:
        name = match[1].lstrip("-")
        if by_name(name) or (len(name) > 4 and "api-key".startswith(name)):
            found.add(match[2])
        at = match.end(1)
    for name, items in _LISTED.findall(text):
        if many(name):
            found |= {item for item in _ITEM.findall(items) if len(item) >= _WITHIN}
    return found


def tells(value: str) -> bool:
    """Whether a text holds a name of a secret and what stands after it."""
    return any(len(s) >= _WITHIN or (len(s) >= _LEAST and not s.isdigit()) for s in suspects(value))


def template(variable: str) -> str:
    return "{{ " + variable + " }}"


def within(value: Any, name: str = "") -> list[tuple[str, str]]:
    """(name, text) of the secrets inside a flag's value: by the keys of its mappings, by form. What
    stands in a table of secrets is one, whatever its key is."""
    if isinstance(value, str):
        head, equals, _ = value.partition("=")
        named = bool(name and by_name(name)) or bool(equals and by_name(head))
        found = value and (named or by_form(value, name) or tells(value))
        return [(name, value)] if found else []
    if isinstance(value, Mapping):
        named_all = bool(name) and many(name)
        return [
            one
            for key, part in value.items()
            for one in within(part, name if named_all and not by_name(str(key)) else str(key))
        ]
    if isinstance(value, list):
        return [one for part in value for one in within(part, name)]
    return []
