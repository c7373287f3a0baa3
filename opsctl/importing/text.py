"""A text of any kind → its description. The one entry for what people paste or keep in files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from opsctl.importing import compose, script
from opsctl.importing.describe import Asked, describe
from opsctl.importing.marks import theirs
from opsctl.importing.model import Imported, Launch, Report
from opsctl.importing.pasted import pasted
from opsctl.importing.secrets import suspects
from opsctl.importing.shell import Scope
from opsctl.importing.unit import directives, own, risks
from opsctl.importing.unit import launch as unit_launch
from opsctl.importing.unit import read as unit_read

KINDS = ("auto", "command", "unit", "docker", "compose")
_MOST = 1 << 20  # characters


def kind_of(texts: Sequence[tuple[str, str]]) -> str:
    """By what is in it, or by the name of its file."""
    whole = "\n".join(text for _, text in texts)
    if unit_read.looks_like(whole) or any(p.endswith((".service", ".container")) for p, _ in texts):
        return "unit"
    if compose.document(whole) is not None:
        return "compose"
    return "command"


def from_text(
    texts: Sequence[tuple[str, str]], kind: str = "auto", asked: Asked | None = None
) -> Imported:
    """`texts`: (path, content); several for a unit with drop-ins. Raises nothing: what is wrong is
    in `problems`."""
    asked = asked or Asked()
    whole = "\n".join(text for _, text in texts)
    report = Report()
    found: Launch | None = None
    if "\0" in whole:
        report.refuse("holds a NUL character, which no command has")
    elif len(whole) > _MOST:
        report.refuse("is larger than any launch command or unit", value=f"{len(whole)} characters")
    else:
        report.hidden = suspects("\n".join([whole, *asked.files.values()]))
        found = launch(texts, whole, kind_of(texts) if kind == "auto" else kind, asked, report)
    if found is None:
        found = Launch([])
        if not report.problems:
            report.refuse("holds no command")
    elif asked.cwd and not (found.cwd and found.cwd != "/"):
        found.cwd = asked.cwd
    return describe(found, asked, report)


def launch(
    texts: Sequence[tuple[str, str]], whole: str, kind: str, asked: Asked, report: Report
) -> Launch | None:
    """What the text would start; None with the reason in the report."""
    if kind == "unit":
        parts = unit_read.ordered(texts)
        if parts != list(texts):
            names = ", ".join(PurePosixPath(path).name or "stdin" for path, _ in parts)
            why = "a drop-in counts after its unit, and drop-ins by their names, in whatever order "
            report.note("changed", theirs(names), f"read in this order: {why}they are given")
        unit = unit_read.read(parts)
        if unit.release and not asked.own:
            report.problems.append(own.told(unit))
            return None
        around(unit, report)
        return unit_launch.launch(
            unit, asked.files, asked.variables, asked.mounts, report, asked.cwd
        )
    if kind == "compose":
        document = compose.document(whole)
        if document is None:
            report.refuse("is no compose file: it has no services")
            return None
        made = compose.launch(
            document, asked.service, asked.variables, asked.files, asked.mounts, report, asked.cwd
        )
        return _within(made, asked, report) if made is not None else None
    if re.search(
        r"^kind:[ \t]*(Deployment|Pod|StatefulSet|LeaderWorkerSet)\b", whole, re.MULTILINE
    ):
        report.refuse(
            "is a manifest of Kubernetes, which is not read",
            hint="import the container's command, or the running process",
        )
        return None
    reading = script.Reading(report, asked.files, asked.mounts, variables=asked.variables)
    scope = Scope(dict(asked.variables), cwd=asked.cwd or None, assumed=reading.assumed)
    script.read(pasted(whole, report), scope, reading)
    return script.one(reading)


def around(unit: unit_read.Unit, report: Report) -> None:
    """What a unit of other hands says beside its command; of opsctl's own there is nothing."""
    if not unit.release:
        report.risks += risks.risks(unit)
        directives.tell(unit, report)


def _within(made: Launch, asked: Asked, report: Report) -> Launch | None:
    reading = script.Reading(report, asked.files, asked.mounts)
    script.settle(made, reading, Scope())
    return script.one(reading)
