"""A command line read as the engine's own parser reads it, by the catalogue of its version.

argparse takes aliases, "=" forms, unambiguous abbreviations and, of an option given twice, the
last: what was typed is told beside what it means, so that the description can say it in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from opsctl.engine import Catalogue, Flag, catalogue

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_SWITCHES = ("switch", "void", "onoff")


@dataclass(frozen=True)
class Given:
    """One option of the command line. `written`: as it was typed, without its value; `how`: exact
    (the canonical name), alias, abbreviation or negative; `values`: texts, none of a switch."""

    flag: Flag
    written: str
    how: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Stray:
    """What the engine would refuse. `why`: unknown, ambiguous (`near` has what it may mean),
    missing (a value), unwanted (a value of a switch), positional (`flag`: the one before it, `at`:
    which argument it is, from 1), dashes (a lone "--"), help."""

    why: str
    written: str
    values: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    flag: Flag | None = None
    at: int = 0


def walk(known: Catalogue, argv: Sequence[str]) -> tuple[list[Given], list[Stray]]:
    given: list[Given] = []
    strays: list[Stray] = []
    at = 0
    while at < len(argv):
        word = argv[at]
        at += 1
        if word == "--":
            strays.append(Stray("dashes", word, tuple(argv[at:])))
            break
        if not is_option(word, known):
            strays.append(Stray("positional", word, flag=given[-1].flag if given else None, at=at))
            continue
        follow = _values(argv, at, known)
        one, taken = _option(known, word, follow)
        at += taken
        (given if isinstance(one, Given) else strays).append(one)  # type: ignore[arg-type]
    return given, strays


def is_option(word: str, known: Catalogue) -> bool:
    """As argparse decides it: a plain negative number and a text with a blank are values."""
    if len(word) < 2 or not word.startswith("-"):
        return False
    name = word.partition("=")[0]
    if name.startswith("--") and _meant(known, name[2:]):
        return True
    return not (_NEGATIVE.fullmatch(word) or " " in word)


def last(given: Iterable[Given]) -> tuple[list[Given], list[tuple[Given, Given]]]:
    """What counts, in order; and (what was overwritten, by what)."""
    counts: dict[str, Given] = {}
    beaten: list[tuple[Given, Given]] = []
    for one in given:
        if (before := counts.pop(one.flag.dest, None)) is not None:
            beaten.append((before, one))
        counts[one.flag.dest] = one
    return list(counts.values()), beaten


def _values(argv: Sequence[str], at: int, known: Catalogue) -> list[str]:
    found = []
    for word in (argv[i] for i in range(at, len(argv))):
        if word == "--" or is_option(word, known):
            break
        found.append(word)
    return found


def _option(known: Catalogue, word: str, follow: list[str]) -> tuple[Given | Stray, int]:
    """What the option is, and how many of the words after it are its own."""
    written, equals, joined = word.partition("=")
    meant = _meant(known, written[2:]) if written.startswith("--") else ()
    if len(meant) != 1:
        why = "ambiguous" if meant else "unknown"
        values = (joined,) if equals else tuple(follow)
        near = tuple(f"--{name}" for name in meant)
        return Stray(why, written, values, near), 0 if equals else len(follow)
    name = meant[0]
    if name in ("help", "h"):
        return Stray("help", written), 0
    flag, how = _flag(known, name, written[2:])
    if flag.kind in _SWITCHES:
        if equals:
            return Stray("unwanted", written, (joined,), flag=flag), 0
        return Given(flag, written, how, ()), 0
    if equals:
        return Given(flag, written, how, (joined,)), 0
    most = len(follow) if flag.many else 1
    taken = follow[:most]
    if not taken and flag.nargs not in ("*", "?"):
        return Stray("missing", written, flag=flag), 0
    return Given(flag, written, how, tuple(taken)), len(taken)


def _flag(known: Catalogue, name: str, written: str) -> tuple[Flag, str]:
    canonical = known.canonical(name)
    if canonical is None:
        return known.flags[name.removeprefix("no-")], "negative"
    how = "exact" if written == canonical else "alias" if written == name else "abbreviation"
    return known.flags[canonical], how


def _meant(known: Catalogue, written: str) -> tuple[str, ...]:
    return _matches(known.version, written)


@lru_cache(maxsize=4096)
def _matches(version: str, written: str) -> tuple[str, ...]:
    """The exact name, or all that it abbreviates."""
    names = _names(version)
    if written in names:
        return (written,)
    return tuple(name for name in names if name.startswith(written)) if written else ()


@lru_cache(maxsize=64)
def _names(version: str) -> dict[str, None]:
    """All names that the parser knows, with the negative forms and its own --help."""
    flags = catalogue(version).flags.values()
    names = [name for flag in flags for name in flag.names]
    names += [f"no-{name}" for flag in flags if flag.kind == "onoff" for name in flag.names]
    return dict.fromkeys([*names, "help"])
