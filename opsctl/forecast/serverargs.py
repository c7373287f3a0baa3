"""The line "server_args=" of a start → its arguments, and where they differ from a manifest's.

Up to 0.5.2x it is ServerArgs(model_path='…', tp_size=8, …), later the repr of a dictionary.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from opsctl import engine
from opsctl.engine.flag import Flag
from opsctl.errors import SpecError
from opsctl.release.kinds import NOT_ON_GPU

MARK = "server_args="

# Flags that the engine never sets by itself: where the description leaves one out, the log shows
# its default. Others may be filled in by the engine, and an absent one says nothing.
LEFT_ALONE = (
    "tp-size", "pp-size", "dp-size", "enable-dp-attention", "kv-cache-dtype", "max-total-tokens",
    "dtype", "load-format", "cpu-offload-gb", "enable-lora", "speculative-algorithm",
)  # fmt: skip
# Other spellings that the engine puts in the place of a flag's value.
_SAME = {"NEXTN": "EAGLE"}


def arguments(line: str) -> dict[str, Any]:
    """The arguments by their own names (model_path, tp_size, …); empty if there are none."""
    begin = line.find(MARK)
    if begin < 0:
        return {}
    body = line[begin + len(MARK) :].strip()
    opening = min((body.find(c) for c in "({" if c in body), default=-1)
    if opening < 0:
        return {}
    found: dict[str, Any] = {}
    for part in _parts(body[opening + 1 :]):
        name, sign, value = part.partition("=" if body[opening] == "(" else ":")
        if sign:
            found[name.strip().strip("'\"")] = _literal(value.strip())
    return found


def _parts(text: str) -> list[str]:
    """Split at the commas that stand in no quotes and no brackets, up to the closing bracket."""
    parts: list[str] = []
    depth, quote, begin, skip = 0, "", 0, False
    for index, char in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return [*parts, text[begin:index]]
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def flags(arguments: Mapping[str, Any], manifest: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The flags of the start as far as they can be compared with the manifest's: those that the
    manifest sets, and those that the engine leaves alone where they are not the default. And
    whether all were there: one that the line does not show is taken to be the same.
    """
    try:
        known = engine.catalogue(str(manifest["engine"]["version"])).flags
    except SpecError:
        known = {}
    found: dict[str, Any] = {}
    whole = True
    for name, value in manifest["flags"].items():
        dest = _spelled(name, known.get(name), arguments)
        same = not dest or _alike(arguments[dest], value)
        found[name] = value if same else arguments[dest]
        whole = whole and (bool(dest) or name in NOT_ON_GPU)
    for name in LEFT_ALONE:
        flag = known.get(name)
        dest = _spelled(name, flag, arguments)
        if name in manifest["flags"] or flag is None or not dest:
            continue
        if not _alike(arguments[dest], flag.default):
            found[name] = arguments[dest]
    return found, whole


def _spelled(name: str, flag: Flag | None, arguments: Mapping[str, Any]) -> str:
    """The argument's name for a flag; "" if it is not there. It is that of one of the flag's
    spellings, and not always the parser's own."""
    spellings = [name, *((flag.dest, *flag.names) if flag is not None else ())]
    names = [spelling.replace("-", "_") for spelling in spellings]
    return next((spelling for spelling in names if spelling in arguments), "")


def _alike(logged: Any, given: Any) -> bool:
    if logged == given:
        return True
    if isinstance(logged, list | tuple) and isinstance(given, list | tuple):
        return list(logged) == list(given)
    if isinstance(logged, bool) or isinstance(given, bool) or logged is None or given is None:
        return not logged and not given  # an absent switch is None, False or empty
    one, two = str(logged), str(given)
    return one == two or _SAME.get(one, one) == _SAME.get(two, two)
