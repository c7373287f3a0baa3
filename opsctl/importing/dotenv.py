"""Files of variables as docker and docker compose read them: two formats of one name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from opsctl.importing.marks import mark

_NAME = r"[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.-]*)[ \t]*"
_LINE = re.compile(
    rf"{_NAME}(?:[=:][ \t]*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"|([^\n]*))[^\n]*|(?=\n|$))",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def plain(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """docker's: NAME=VALUE a line, nothing quoted, nothing expanded. NAME alone is the variable of
    whoever runs it (`known`, else a mark)."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.lstrip().partition("=")
        name = name.strip()
        if name and not name.startswith("#"):
            found[name] = value if equals else known.get(name, mark("variable", name))
    return found


def quoted(
    text: str, known: Mapping[str, str], put: Callable[[str, Mapping[str, str]], str]
) -> dict[str, str]:
    """Compose's: quotes, over lines too, `export`, comments, and variables, which `put` fills in
    from what stands before and from `known`."""
    found: dict[str, str] = {}
    at = 0
    text = text.replace("\r\n", "\n")
    while at < len(text):
        match = None if text[at] in "#\n" else _LINE.match(text, at)
        if match is None:
            at = (text.find("\n", at) + 1) or len(text)
            continue
        name, single, double, bare = match.groups()
        around = {**known, **found}
        if single is not None:
            found[name] = single.replace("\\'", "'")
        elif double is not None:
            found[name] = put(_unescaped(double), around)
        elif bare is not None:
            found[name] = put(re.split(r"(?:^|\s)#", bare)[0].strip(), around)
        else:
            found[name] = known.get(name, mark("variable", name))
        at = max(match.end(), at + 1)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1] if m[1] in '"\\' else m[0]), text)
