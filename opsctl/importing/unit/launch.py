"""A unit → the process that systemd would start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from opsctl.importing import docker, script
from opsctl.importing.marks import mark, plain, theirs
from opsctl.importing.model import Launch, Report
from opsctl.importing.shell import Scope, Simple
from opsctl.importing.unit import directives, envfile, own, words
from opsctl.importing.unit.read import Unit
from opsctl.importing.unit.variables import environment, put


def launch(
    unit: Unit,
    files: Mapping[str, str],
    variables: Mapping[str, str],
    mounts: tuple[tuple[str, str], ...],
    report: Report,
    cwd: str = "",
) -> Launch | None:
    """`cwd`: the folder of the unit's file, "" if it is not known."""
    known = _specifiers(unit)
    files = {**unit.files, **files}
    if unit.has("Container"):
        try:
            return _quadlet(unit, known, files, mounts, report, cwd)
        except words.Malformed as error:
            report.refuse(str(error), key="[Container]", hint="podman itself would not take it")
            return None
    found = started(unit, files, variables, report)
    return _process(unit, *found, known, files, mounts, report) if found is not None else None


def started(
    unit: Unit, files: Mapping[str, str], variables: Mapping[str, str], report: Report
) -> tuple[list[str], dict[str, str]] | None:
    """(argv, variables) as systemd would start it; None with the reason in the report."""
    known = _specifiers(unit)
    lines = unit.all("ExecStart")
    if not lines:
        report.refuse(
            "has no ExecStart=: it is a drop-in, or a part of a unit",
            hint="give the unit itself first, then its drop-ins: systemctl cat prints all",
        )
        return None
    if len(lines) > 1:
        report.refuse(f"has {len(lines)} lines ExecStart=; an engine is one process")
        return None
    try:
        env, complete = environment(unit, known, files, report)
        env |= variables
        secret, keys = own.secrets(unit, files, report)
        env |= secret
        argv = _argv(lines[0], env, complete, known, unit, report)
    except words.Malformed as error:
        report.refuse(str(error), key="ExecStart", hint="systemd itself would not take it")
        return None
    if argv is None:
        return None
    if not all(map(envfile.valid, argv)):
        report.refuse("an argument holds bytes that are no UTF-8 text", key="ExecStart")
        return None
    return [*argv, *keys], env


def _process(
    unit: Unit,
    argv: list[str],
    env: dict[str, str],
    known: Mapping[str, str],
    files: Mapping[str, str],
    mounts: tuple[tuple[str, str], ...],
    report: Report,
) -> Launch | None:
    reading = script.Reading(report, files, mounts)
    cwd = put("WorkingDirectory", unit.last("WorkingDirectory").lstrip("-"), known, report)
    here = cwd if cwd.startswith("/") else None
    scope = Scope(dict(env), set(env), [], here, reading.assumed)
    script.program(argv, Simple(), scope, reading, 0)
    found = script.one(reading)
    if found is not None:
        found.user = unit.last("User") or found.user or "root"
        found.name = unit.name or found.name
        found.drain = directives.drain(unit)
        found.cwd = found.cwd or scope.cwd or (None if found.container else "/")
        if found.wrapped and not found.container:
            report.note("dropped", "a shell before the engine", "the unit starts the engine itself")
    return found


def _argv(
    line: str,
    env: dict[str, str],
    complete: bool,
    known: Mapping[str, str],
    unit: Unit,
    report: Report,
) -> list[str] | None:
    """The words, with variables as systemd puts them in: of what is not set, nothing."""
    match = re.match(r"[@\-:+!|]*", line)
    prefix = match[0] if match else ""
    split = words.arguments(line[len(prefix) :])
    if split is None:
        report.refuse("starts several commands in one ExecStart=")
        return None
    split = [words.specifiers(word, known) for word in split]
    if "@" in prefix and len(split) > 1:
        split.pop(1)
    if ":" in prefix:
        return split
    around = {**_of_the_user(unit), **env}
    for name, written in words.used(split):
        if not words.is_name(name):
            report.note("told", theirs(plain(written)), _NO_VARIABLE)
        elif name not in around:
            if complete:
                report.note("told", f"${name}", "is set nowhere: systemd puts nothing in its place")
            else:
                around[name] = mark("variable", name)
    return words.expand(split, around)


_NO_VARIABLE = (
    "systemd takes all of it for the name of a variable, which is none, and puts nothing in its "
    "place; ${NAME} may stand within a word"
)


def _of_the_user(unit: Unit) -> dict[str, str]:
    user = unit.last("User") or "root"
    home = "/root" if user == "root" else mark("home", f"~{user}")
    return {"USER": user, "LOGNAME": user, "HOME": home}


def _specifiers(unit: Unit) -> dict[str, str]:
    """What the name tells, and the system manager's own folders."""
    found = {
        "t": "/run",
        "S": "/var/lib",
        "C": "/var/cache",
        "L": "/var/log",
        "E": "/etc",
        "T": "/tmp",
        "V": "/var/tmp",
        "h": "/root",
        "u": "root",
        "U": "0",
        "g": "root",
        "G": "0",
    }
    if not unit.name:
        return found
    stem = PurePosixPath(unit.name).stem
    prefix, _, instance = stem.partition("@")
    found |= {"n": unit.name, "N": stem, "p": prefix}
    if not instance:
        return found  # a template without an instance, or the copy of one: %i is not known
    path = instance.replace("-", "/")
    return found | {"i": instance, "I": path, "j": prefix.rsplit("-", 1)[-1], "f": f"/{path}"}


def _quadlet(
    unit: Unit,
    known: Mapping[str, str],
    files: Mapping[str, str],
    mounts: tuple[tuple[str, str], ...],
    report: Report,
    cwd: str,
) -> Launch | None:
    """A podman .container file: its keys are options of `podman run`."""

    def get(key: str) -> str:
        return unit.last(key, section="Container")

    options: list[tuple[str, str]] = []
    for text in unit.all("PodmanArgs", "Container"):
        options += docker.parse([*words.split(text), "image"])[0]
    for key, option in (
        ("Volume", "--volume"),
        ("PublishPort", "--publish"),
        ("AddDevice", "--device"),
        ("EnvironmentFile", "--env-file"),
    ):
        options += [(option, text) for text in unit.all(key, "Container")]
    for line in unit.all("Environment", "Container"):
        options += [("--env", f"{n}={v}") for n, v in words.assignments(line, known)[0].items()]
    for key, option in (
        ("Network", "--network"),
        ("WorkingDir", "--workdir"),
        ("User", "--user"),
        ("ShmSize", "--shm-size"),
        ("ContainerName", "--name"),
    ):
        if text := get(key):
            options.append((option, words.specifiers(text, known)))
    entrypoint = words.split(get("Entrypoint")) or None
    found = docker.launch(
        docker.Settings(options, report, cwd),
        get("Image"),
        words.split(get("Exec")),
        {},
        files,
        mounts,
        entrypoint,
    )
    if found is None:
        return None
    reading = script.Reading(report, files, mounts)
    script.settle(found, reading, Scope())
    launched = script.one(reading)
    if launched is not None:
        launched.name = unit.name or launched.name
        launched.drain = directives.drain(unit)
    return launched
