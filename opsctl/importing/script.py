"""A text that a shell would run → the one engine that it starts. Nothing is run: what the text
itself tells is followed (variables, cd, export), what only a run would tell is refused."""

from __future__ import annotations

from pathlib import PurePosixPath

from opsctl.importing import docker
from opsctl.importing.builtins import EXPORTS, assign, builtin, export, labelled
from opsctl.importing.entry import Entry, Other, entry
from opsctl.importing.files import given
from opsctl.importing.marks import plain, theirs, unknown_parts, whole
from opsctl.importing.model import Launch, Report
from opsctl.importing.packages import installs, pinned
from opsctl.importing.pasted import mended
from opsctl.importing.reading import HARMLESS, Reading, around, kept_back, one, tell_assumed
from opsctl.importing.shell import Scope, Simple, Unreadable, commands, expand
from opsctl.importing.wrappers import Unwrapped, unwrap

__all__ = ["Reading", "one", "program", "read", "settle", "tell_assumed"]

_DEEPEST = 8


def read(text: str, scope: Scope, reading: Reading, *, depth: int = 0) -> None:
    """Adds to `reading`. What is wrong is told in its report."""
    if depth > _DEEPEST:
        reading.report.refuse("scripts start each other too deeply to follow")
        return
    try:
        found = commands(text)
    except Unreadable as error:
        reading.report.refuse(str(error))
        return
    for simple in found:
        before = simple.before
        if before == "|" and reading.launches:
            continue  # it only reads what the engine prints: told with the redirections
        known = len(reading.launches)
        _command(simple, text, scope, reading, depth)
        if len(reading.launches) > known:
            around(simple, before, reading.report)
            kept_back(scope, reading)


def _command(simple: Simple, text: str, scope: Scope, reading: Reading, depth: int) -> None:
    if not simple.words:
        assign(simple, scope, reading, scope)
        return
    inner = Scope(
        dict(scope.values), set(scope.exported), scope.arguments, scope.cwd, reading.assumed
    )
    assign(simple, scope, reading, inner, export=True)
    words = mended(simple.words, text, reading.report)
    first = simple.words[0].bare or ""
    if first in EXPORTS:
        export(words[1:], scope, reading)
        return
    argv = [field for word in words for field in expand(word, inner)]
    for name in reading.assumed.keys() & inner.values.keys() - {a.name for a in simple.assignments}:
        scope.values.setdefault(name, inner.values[name])  # of ${NAME:=DEFAULT}
    if simple.assignments and argv and argv[0].startswith("-"):
        argv = labelled(simple, inner, argv, reading.report)
    if argv == ["exec"] and simple.redirects:
        around(simple, "", reading.report)
    elif argv[:1] in (["source"], ["."]):
        _source(argv, scope, reading, depth)
    elif argv and not builtin(argv, scope, reading, simple.line):
        program(argv, simple, inner, reading, depth)


def _source(argv: list[str], scope: Scope, reading: Reading, depth: int) -> None:
    path = argv[1] if len(argv) > 1 else ""
    if path.endswith("/bin/activate") and whole(path):
        full = PurePosixPath(scope.cwd or "/", path)
        absolute = path.startswith("/") or scope.cwd is not None
        reading.root = str(full.parent.parent) if absolute else None
        reading.report.note("dropped", f"source {path}", "the unit names the environment itself")
    elif (text := given(reading.files, path)) is not None:
        arguments = scope.arguments
        scope.arguments = argv[2:] or arguments
        read(text, scope, reading, depth=depth + 1)
        scope.arguments = arguments
    else:
        reading.unread.append(plain(path))


def program(argv: list[str], simple: Simple, scope: Scope, reading: Reading, depth: int) -> None:
    report = Report()
    left = unwrap(argv, report)
    inner = _inner(left, scope)
    for name in left.unset:
        set_before = name in scope.exported
        why = "takes away what was set before" if set_before else "opsctl's unit does not set it"
        report.note("dropped", f"env -u {theirs(plain(name))}", why)
    if left.script is not None or left.script_file is not None:
        _nested(left, inner, reading, report, depth)
        return
    name = PurePosixPath(left.argv[0]).name if left.argv else ""
    if name in docker.PROGRAMS:
        _container(left, inner, reading, report, simple)
        return
    if installs(left.argv):
        reading.packages += pinned(left.argv)
        why = "opsctl's own environment takes its place: engine.install says how it gets there"
        named = " ".join(pinned(left.argv)) or "sglang"
        reading.report.note("changed", theirs(f"{name} … {named}"), why)
        return
    way = entry(left.argv)
    if isinstance(way, Entry):
        _keep(reading, report)
        reading.launches.append(_launch(left, inner, reading))
    elif left.argv and given(reading.files, left.argv[0]) is not None:
        file = Unwrapped([], script_file=left.argv[0], arguments=left.argv[1:])
        _nested(file, inner, reading, report, depth)
    elif not left.argv and simple.before == "|" and left.wrapped:
        _piped(left.wrapped[-1], simple.line, reading)
    elif isinstance(way, Other) and (way.what or not name):
        reading.strangers.append(_launch(left, inner, reading))
        said = f"{left.wrapped[-1]} without a command" if left.wrapped else "nothing"
        reading.others.append((plain(name) or said, simple.line))
    else:
        if name.endswith(".sh"):
            reading.unread.append(plain(left.argv[0]))
            return
        if name not in HARMLESS:
            reading.strangers.append(_launch(left, inner, reading))
        reading.others.append((plain(name), simple.line))


def _piped(shell: str, line: int, reading: Reading) -> None:
    reading.piped = True
    feeder = reading.others.pop()[0] if reading.others else "another command"
    reading.report.refuse(
        f"line {line} hands what {feeder} prints to {shell}, which runs it: only a run tells what "
        "that is",
        hint="save it to a file, read it, and import that: opsctl import FILE",
    )


def _inner(left: Unwrapped, scope: Scope) -> Scope:
    values, exported = dict(scope.values), set() if left.clear else set(scope.exported)
    for name in left.unset:
        values.pop(name, None)
        exported.discard(name)
    values.update(left.env)
    cwd = left.cwd if left.cwd and whole(left.cwd) else None if left.cwd else scope.cwd
    if left.cwd and cwd and not cwd.startswith("/"):
        cwd = str(PurePosixPath(scope.cwd, cwd)) if scope.cwd else None
    return Scope(values, exported | set(left.env), scope.arguments, cwd, scope.assumed)


def _launch(left: Unwrapped, scope: Scope, reading: Reading) -> Launch:
    return Launch(
        left.argv,
        scope.env(),
        cwd=scope.cwd,
        user=left.user,
        root=reading.root,
        packages=[*reading.packages, *left.packages],
        wrapped=left.wrapped,
    )


def _keep(reading: Reading, report: Report) -> None:
    reading.report.notes += [n for n in report.notes if n not in reading.report.notes]
    reading.report.problems += report.problems


def _nested(left: Unwrapped, scope: Scope, reading: Reading, report: Report, depth: int) -> None:
    text = left.script
    if text is None and left.script_file is not None:
        text = given(reading.files, left.script_file)
        if text is None:
            reading.unread.append(plain(left.script_file))
            return
    if not whole(text or ""):
        for message, hint in unknown_parts(text or ""):
            reading.report.refuse(f"a shell reads a text in which {message}", hint=hint)
        return
    _keep(reading, report)
    known = len(reading.launches)
    # A variable that is not exported does not reach another shell.
    inner = Scope(
        {n: scope.values[n] for n in scope.exported if n in scope.values},
        set(scope.exported),
        left.arguments,
        scope.cwd,
        reading.assumed,
    )
    read(text or "", inner, reading, depth=depth + 1)
    for launch in reading.launches[known:]:
        launch.user = launch.user or left.user
        launch.wrapped = [*left.wrapped, *launch.wrapped]
        launch.packages = [*left.packages, *launch.packages]


def _container(
    left: Unwrapped, scope: Scope, reading: Reading, report: Report, simple: Simple
) -> None:
    verb = next((word for word in left.argv[1:] if not word.startswith("-")), "")
    if verb in (
        "pull",
        "rm",
        "stop",
        "kill",
        "network",
        "volume",
        "image",
        "login",
        "logs",
        "ps",
        "container",
        "system",
        "wait",
        "info",
        "version",
    ):
        report.note("dropped", f"{left.argv[0]} {verb}", "there is no container any more")
        _keep(reading, report)
        return
    _keep(reading, report)
    env = {**reading.variables, **scope.env()}
    launch = docker.run(
        left.argv, env, reading.files, reading.mounts, reading.report, scope.cwd or ""
    )
    if launch is not None:
        launch.wrapped = [*left.wrapped, *launch.wrapped]
        settle(launch, reading, scope)


def settle(launch: Launch, reading: Reading, scope: Scope) -> None:
    """The engine within a container's command, which may be a shell's or a wrapper's."""
    inner = Reading(reading.report, reading.files, reading.mounts, assumed=reading.assumed)
    around = Scope(dict(launch.env), set(launch.env), [], launch.cwd, reading.assumed)
    program(launch.argv, Simple(), around, inner, 1)
    for found in inner.launches:
        found.container, found.name = launch.container, launch.name
        found.said = launch.said
        found.wrapped = [*launch.wrapped, *found.wrapped]
    reading.launches += inner.launches
    reading.strangers += inner.strangers
    reading.others += inner.others
    reading.unread += inner.unread
