"""Commands of a shell that change how the rest is read: variables, folders, environments."""

from __future__ import annotations

from pathlib import PurePosixPath

from opsctl.importing.marks import plain, whole
from opsctl.importing.model import Report
from opsctl.importing.reading import Reading
from opsctl.importing.shell import Scope, Simple, expand, expand_one
from opsctl.importing.shell.words import Word

EXPORTS = ("export", "declare", "typeset", "readonly", "local")


def labelled(simple: Simple, inner: Scope, argv: list[str], report: Report) -> list[str]:
    """command=python3 -m …: a log's own label before what it ran."""
    label = simple.assignments[-1]
    value = inner.values.pop(label.name, "")
    report.note("dropped", f"{label.name}=", "a label of the log that it was copied from")
    return [*str(value).split(), *argv]


def assign(
    simple: Simple, scope: Scope, reading: Reading, into: Scope, *, export: bool = False
) -> None:
    for assignment in simple.assignments:
        old = into.values.get(assignment.name)
        if assignment.value is None:
            items = [f for word in assignment.array for f in expand(word, scope)]
            kept = old if assignment.append and isinstance(old, list) else []
            into.values[assignment.name] = [*kept, *items]
            continue
        value = expand_one(assignment.value, into)
        if assignment.append and isinstance(old, str):
            value = old + value
        into.values[assignment.name] = value
        if export or reading.exporting:
            into.exported.add(assignment.name)


def export(words: list[Word], scope: Scope, reading: Reading) -> None:
    for word in words:
        for text in [expand_one(word, scope)]:
            name, equals, value = text.partition("=")
            if text.startswith("-"):
                continue
            if equals:
                scope.values[name] = value
            scope.exported.add(name)


def builtin(argv: list[str], scope: Scope, reading: Reading, line: int) -> bool:
    """What changes how the rest is read. Answers whether it was one of these."""
    name = argv[0]
    if name in ("cd", "pushd"):
        target = next((word for word in argv[1:] if not word.startswith("-")), "")
        here = scope.cwd or ""
        known = target.startswith("/") or (here and whole(target))
        scope.cwd = str(PurePosixPath(here, target)) if known and whole(target) else None
        return True
    if name in ("conda", "mamba", "micromamba") and argv[1:2] == ["activate"]:
        _conda(argv, reading)
        return True
    if name == "unset":
        for word in argv[1:]:
            scope.values.pop(word, None)
            scope.exported.discard(word)
        return True
    if name == "set" and ("-a" in argv or "allexport" in argv):
        reading.exporting = "+a" not in argv
    if name == "eval":
        reading.report.refuse(f"line {line} builds a command by eval, which only a run decides")
        return True
    return False


def _conda(argv: list[str], reading: Reading) -> None:
    target = next((word for word in argv[2:] if not word.startswith("-")), "")
    if target.startswith("/") and whole(target):
        reading.root = target
        reading.report.note("dropped", " ".join(argv), "the unit names the environment itself")
        return
    reading.report.note(
        "lost",
        plain(" ".join(argv)),
        "the text does not tell the folder of this environment: if the engine shall run in it, "
        "write engine.root",
    )
