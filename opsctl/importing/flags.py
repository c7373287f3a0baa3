"""What an engine's arguments say: typed values by canonical name, and what was told of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opsctl import engine
from opsctl.engine import Catalogue
from opsctl.engine.flag import JSON_KINDS
from opsctl.engine.refused import Refused
from opsctl.engine.renames import having, successor
from opsctl.engine.values import text
from opsctl.importing import foreign
from opsctl.importing.arguments import Given, Stray, last, walk
from opsctl.importing.marks import placeholder, plain, theirs, unknown_parts, whole
from opsctl.importing.model import Report
from opsctl.importing.secrets import Vault, secret_flag, shown
from opsctl.importing.values import UNSET, read
from opsctl.importing.versions import said

SECRETS = ("api-key", "admin-api-key")
_WORDS = 10


def flags(known: Catalogue, args: Sequence[str], report: Report, vault: Vault) -> dict[str, Any]:
    """In the order in which they were written, the last of each alone. What is wrong is told in
    the report; the values are those that are right."""
    given, strays = walk(known, args)
    for secret in (one for one in given if secret_flag(one.flag)):
        vault.hidden |= {v for v in secret.values if whole(v)}
    for stray in _few(strays, report):
        _stray(known, stray, report, vault)
    counts, beaten = last(given)
    for before, after in beaten:
        _beaten(before, after, report)
    found: dict[str, Any] = {}
    for one in counts:
        value = _value(known, one, report)
        if value is not UNSET:
            found[one.flag.name] = value
            _told(known, one, value, report)
    return found


def _value(known: Catalogue, one: Given, report: Report) -> Any:
    key = f"flags.{one.flag.name}"
    missing = [part for value in one.values for part in unknown_parts(value)]
    missing += _placeholders(one, report)
    if missing:
        for message, hint in missing:
            report.refuse(message, key=key, hint=hint)
        return UNSET
    if one.flag.kind == "refused":
        use = f"use {one.flag.deprecated}" if one.flag.deprecated else ""
        report.refuse(f"SGLang {known.version} knows {one.written} only to refuse it", hint=use)
        return UNSET
    try:
        value = read(one)
        if value is UNSET:
            _nothing(known, one, report)
        return value
    except Refused as refused:
        report.refuse(
            refused.message,
            key=key,
            value="" if secret_flag(one.flag) else " ".join(one.values)[:200],
            allowed=refused.allowed,
            hint=_taken_by(one) or refused.hint,
        )
        return UNSET


def _nothing(known: Catalogue, one: Given, report: Report) -> None:
    """Tells why the engine takes it for not given."""
    why = "the engine takes this value for none"
    if one.flag.kind == "void":
        why = f"has no effect in SGLang {known.version}"
        why += f"; use {one.flag.deprecated}" if one.flag.deprecated else ""
    written = " ".join([one.written, *(theirs(repr(value)) for value in one.values)])
    report.note("dropped", written, why)


def _placeholders(one: Given, report: Report) -> list[tuple[str, str]]:
    """What documentation means to be replaced, and a shell or the engine would take as it is."""
    if report.exact or one.flag.kind in (*JSON_KINDS, "json_text") or one.flag.name in SECRETS:
        return []
    found = [value for value in one.values if placeholder(value)]
    return [(f"{theirs(repr(value))} is a placeholder", "write the real value") for value in found]


def _taken_by(one: Given) -> str:
    """Versions that take a value which is none of this version's choices."""
    if not one.flag.choices:
        return ""
    there = []
    for version in engine.versions():
        known = engine.catalogue(version)
        name = known.canonical(one.flag.name)
        try:
            if name is not None:
                read(replace(one, flag=known.flags[name]))
                there.append(version)
        except Refused:
            continue
    return f"{said(there)} {'take' if len(there) > 1 else 'takes'} this value" if there else ""


def _told(known: Catalogue, one: Given, value: Any, report: Report) -> None:
    name = one.flag.name
    if one.how == "abbreviation":
        report.note(
            "changed",
            f"{one.written} → {name}",
            "an abbreviation, which the next version may read otherwise, is written in full",
        )
    elif one.how == "alias":
        report.note("changed", f"{one.written} → {name}", "another name of the same flag")
    if name in SECRETS or one.flag.many or one.flag.kind in ("switch", "onoff") or not one.values:
        return
    typed = text(one.flag, value)
    if typed != one.values[0] and one.flag.kind in ("int", "size", "float"):
        try:
            same = float(typed) == float(one.values[0])
        except ValueError:
            same = False
        if not same:
            report.note(
                "changed", f"{name}: {theirs(one.values[0])} → {typed}", "the same number, plainly"
            )


def _beaten(before: Given, after: Given, report: Report) -> None:
    lost = (
        ""
        if secret_flag(before.flag) or not before.values
        else f" {theirs(plain(' '.join(before.values)))}"
    )
    again = "is given again" if before.flag == after.flag else f"sets the same as {after.written}"
    report.note("dropped", f"{before.written}{lost}", f"{again} later on, and the last one counts")


def _stray(known: Catalogue, stray: Stray, report: Report, vault: Vault) -> None:
    written = plain(stray.written)
    if parts := unknown_parts(stray.written):
        for message, hint in parts:
            report.refuse(f"{message}, so nobody knows which arguments it stands for", hint=hint)
    elif stray.why == "ambiguous":
        report.refuse(f"{written} may mean {' or '.join(stray.near[:5])}; the engine refuses it")
    elif stray.why == "missing":
        report.refuse(f"{written} lacks its value")
    elif stray.why == "unwanted":
        _hide(stray.values[0], vault)
        report.refuse(f"{written} takes no value", value=plain(stray.values[0]))
    elif stray.why == "positional":
        made = "\u2010" <= stray.written[:1] <= "\u2015"
        hint = "a page made this dash of two: write --" if made else ""
        report.refuse(_positional(stray, vault), hint=hint)
    elif stray.why == "dashes":
        report.refuse("-- ends the options: the engine takes no arguments beside them")
    elif stray.why == "help":
        report.refuse(f"{written} only shows the engine's help")
    else:
        _unknown(known, stray, report)


def _few(strays: list[Stray], report: Report) -> list[Stray]:
    """Of words without a flag the first alone: one quote that is missing makes many of them."""
    words = [one for one in strays if one.why == "positional"]
    if len(words) > _WORDS:
        report.refuse(
            f"{len(words)} words belong to no flag; the first {_WORDS} are told",
            hint="is a quote missing, or a flag's name?",
        )
    left = {id(one) for one in words[_WORDS:]}
    return [one for one in strays if id(one) not in left]


def _hide(word: str, vault: Vault) -> None:
    """A word that nobody knows the meaning of is told nowhere, if it may be a secret."""
    if whole(word) and len(word) >= 8 and "(***" in shown(word):
        vault.hidden.add(word)


def _positional(stray: Stray, vault: Vault) -> str:
    word, before = stray.written, stray.flag
    if not word.strip():
        return (
            "there is an argument of blanks alone (a backslash before a blank, in the middle of a "
            "line, does not continue it); the engine refuses it"
        )
    where = f"argument {stray.at}" + (f", after --{before.name}" if before else "")
    if before is not None and secret_flag(before):
        vault.hidden.add(word)
        return (
            f"{where}: a word that belongs to no flag (not shown: it may be a part of the secret); "
            "the engine refuses it"
        )
    _hide(word, vault)
    return f"{where}: {shown(plain(word))} belongs to no flag; the engine refuses it"


def _unknown(known: Catalogue, stray: Stray, report: Report) -> None:
    written = plain(stray.written)
    bare = written.lstrip("-")
    if program := foreign.program(bare):
        instead = foreign.OF_VLLM.get(bare, "")
        hint = f"write {instead}" if instead in known.flags else ""
        report.refuse(f"{written} is a flag of {program}, not of the engine's server", hint=hint)
        return
    if len(bare) > 2 and (there := having(bare)):
        now = successor(bare, known.version)
        do = "have" if len(there) > 1 else "has"
        hint = f"write {now}" if now else "it has nothing in its place: leave it out"
        message = f"SGLang {known.version} does not have {written}; {said(there)} {do} it"
        report.refuse(message, hint=hint)
        return
    (problem,) = known.check({bare: 1})[1]
    found = replace(problem, key="", value="", message=f"{written}: {problem.message}")
    if found not in report.problems:
        report.problems.append(found)


def catalogue_of(version: str) -> Catalogue:
    """Raises SpecError: there is none."""
    return engine.catalogue(
        re.sub(r"\+.*", "", version) if version not in engine.versions() else version
    )
