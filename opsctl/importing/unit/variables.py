"""The variables that a unit sets, by its own lines and by its files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opsctl.importing.environment import OURS
from opsctl.importing.files import for_each, given, which
from opsctl.importing.marks import plain, theirs
from opsctl.importing.model import Report
from opsctl.importing.unit import envfile, words
from opsctl.importing.unit.read import Unit


def environment(
    unit: Unit, known: Mapping[str, str], files: Mapping[str, str], report: Report
) -> tuple[dict[str, str], bool]:
    """The variables, and whether all of their files were given."""
    found: dict[str, str] = {}
    complete = True
    for line in unit.all("Environment"):
        here, wrong = words.assignments(line, known)
        found |= here
        for word in wrong:
            report.note(
                "dropped",
                f"{theirs(plain(word))} in Environment=",
                "no assignment: systemd ignores it (a # there begins no comment)",
            )
    lines = unit.all("EnvironmentFile")
    paths = [put("EnvironmentFile", line.removeprefix("-"), known, report) for line in lines]
    for line, path in zip(lines, paths, strict=True):
        if path:
            there, whole = _of_file(
                path, line.startswith("-"), files, [*filter(None, paths)], report
            )
            found |= there
            complete = complete and whole
    for line in unit.all("UnsetEnvironment"):
        for word in words.listed(line)[0]:
            _unset(put("UnsetEnvironment", word, known, report), found, report)
    if unit.all("PassEnvironment"):
        report.note(
            "told",
            f"PassEnvironment={theirs(' '.join(unit.all('PassEnvironment')))}",
            "comes from the manager's own variables, which no text tells",
        )
    return found, complete


def _unset(word: str, found: dict[str, str], report: Report) -> None:
    """Takes a variable away again, whatever set it; NAME=VALUE only if it has this value."""
    name, equals, value = word.partition("=")
    why = "opsctl's unit does not set it"
    if name in found and (not equals or found[name] == value):
        del found[name]
        why = "takes away what the unit sets: the engine never got it"
    elif name in found:
        why = "the variable has another value, and stays"
    elif name in OURS:
        why = "opsctl's unit sets it"
    report.note("dropped", f"UnsetEnvironment={theirs(plain(word))}", why)


def _of_file(
    path: str, optional: bool, files: Mapping[str, str], paths: Sequence[str], report: Report
) -> tuple[dict[str, str], bool]:
    """Its variables, and whether it was given. `paths`: of all such files of the unit."""
    shown = theirs(plain(path))
    text = given(for_each(files, paths), path, variables=True)
    if text is None and optional:
        report.note(
            "told",
            f"EnvironmentFile=-{shown}",
            "was not given, and what it sets is not known; give it with --file PATH=COPY",
        )
    elif text is None:
        report.refuse(
            f"variables come from {shown}, which was not given",
            key="EnvironmentFile",
            hint=which(files, shown),
        )
    if text is None:
        return {}, False
    read = envfile.read(text)
    if read.refused and optional:
        report.note("told", f"EnvironmentFile=-{shown}", f"{read.refused}: systemd takes nothing "
                    "of it")  # fmt: skip
    elif read.refused:
        report.refuse(
            f"variables come from {shown}, which {read.refused}",
            key="EnvironmentFile",
            hint="systemd itself would not start the unit with it",
        )
    for name in read.ignored:
        known = re.fullmatch(r"(?:(?:export|set|declare -x)\s+)?[\w.+-]{1,80}", name)
        what = f"{theirs(plain(name))} in {shown}" if known else f"a line of {shown}"
        report.note("dropped", what, "is no name of a variable: systemd ignores the line (it is no "
                    "shell, and knows no export)")  # fmt: skip
    return read.values, True


def put(key: str, text: str, known: Mapping[str, str], report: Report) -> str:
    """A setting with its specifiers put in; nothing of one that systemd ignores."""
    try:
        return words.specifiers(text, known)
    except words.Malformed as error:
        report.note("dropped", f"{key}={theirs(plain(text))}", f"systemd ignores it: {error}")
        return ""
