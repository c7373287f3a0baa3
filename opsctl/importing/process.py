"""A running process → its description: what /proc tells of it is exact, so nothing is read as a
shell would."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from opsctl.importing.describe import Asked, describe
from opsctl.importing.model import Container, Imported, Launch, Report
from opsctl.importing.secrets import suspects
from opsctl.importing.text import around
from opsctl.importing.unit import directives, words
from opsctl.importing.unit import read as unit_read


def from_process(
    argv: Sequence[str],
    environ: Mapping[str, str],
    unit_text: str = "",
    version_hint: str = "",
    *,
    asked: Asked | None = None,
    cwd: str | None = None,
    user: str | None = None,
    container: Container | None = None,
    said: Collection[str] | None = None,
    folders: Collection[str] | None = None,
) -> Imported:
    """`argv`, `environ`: of the engine's main process. `unit_text`: `systemctl cat` of its unit, if
    it has one, for the variables that the unit itself sets and for its risks. `version_hint`: what
    the host says of the engine (a path, an image, a version). `said`: variables that were set for
    this service, where no unit tells. `folders`: arguments that are folders in `cwd`, where the
    host has looked.

    Raises nothing: what is wrong is in `problems`.
    """
    asked = asked or Asked()
    report = Report(hidden=suspects("\n".join(argv)), exact=True)
    launch = Launch(list(argv), dict(environ), cwd=cwd, user=user, container=container)
    launch.said = set(said or ())
    if unit_text:
        _of_the_unit(launch, unit_text, report)
    launch.version = version_hint
    launch.folders = None if folders is None else frozenset(folders)
    return describe(launch, asked, report)


def _of_the_unit(launch: Launch, text: str, report: Report) -> None:
    unit = unit_read.read([("", text)])
    around(unit, report)
    launch.drain = directives.drain(unit)
    launch.name = launch.name or unit.name or None
    launch.user = launch.user or unit.last("User") or None
    for line in unit.all("Environment"):
        with suppress(words.Malformed):  # systemd ignores such a line
            launch.said = {*(launch.said or ()), *words.assignments(line, {})[0]}
