"""A text that a shell would run → the one engine that it starts. Nothing is run: what the text
itself tells is followed (variables, cd, export), what only a run would tell is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from opsctl.importing import docker
from opsctl.importing.entry import Entry, Other, entry
from opsctl.importing.files import given
from opsctl.importing.marks import plain, theirs, unknown_parts, whole
from opsctl.importing.model import Launch, Report
from opsctl.importing.pasted import mended
from opsctl.importing.secretnames import by_name
from opsctl.importing.shell import Scope, Simple, Unreadable, commands, expand, expand_one
from opsctl.importing.shell.words import Word
from opsctl.importing.wrappers import Unwrapped, unwrap

# They prepare, wait or tell; systemd, the roles and the journal do that now.
_HARMLESS = {
    *(
        "set",
        "shopt",
        "ulimit",
        "umask",
        "echo",
        "printf",
        "mkdir",
        "sleep",
        "wait",
        "trap",
        "true",
    ),
    *(":", "touch", "date", "which", "type", "hash", "nvidia-smi", "disown", "jobs", "tail", "cat"),
    *("ls", "pwd", "whoami", "hostname", "id", "uname", "free", "df", "exit", "return", "popd"),
    *("pushd", "tee", "clear", "history", "alias", "unalias", "test", "[", "module", "conda"),
    *("micromamba", "mamba", "modprobe", "sysctl", "head", "grep"),
}
_EXPORTS = ("export", "declare", "typeset", "readonly", "local")
_DEEPEST = 8


@dataclass
class Reading:
    """What one text comes to. `others`: (name, line) of commands beside the engine."""

    report: Report
    files: Mapping[str, str]
    mounts: tuple[tuple[str, str], ...] = ()
    launches: list[Launch] = field(default_factory=list)
    others: list[tuple[str, int]] = field(default_factory=list)
    strangers: list[Launch] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    piped: bool = False  # a shell reads what another command prints
    root: str | None = None
    exporting: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)  # what the operator says of them
    assumed: dict[str, str] = field(default_factory=dict)  # defaults, by their variables


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
            _around(simple, before, reading.report)
            _kept_back(scope, reading.report)


def _kept_back(scope: Scope, report: Report) -> None:
    """A=1 alone sets a variable of the shell: the engine never gets it."""
    ours = re.compile(r"(SGLANG|NCCL|CUDA|HF|MC|MOONCAKE|TORCH|TRITON|FLASHINFER)_[A-Z0-9_]+")
    names = [n for n in scope.values if n not in scope.exported and ours.fullmatch(n)]
    if names:
        report.note(
            "dropped",
            ", ".join(names),
            "set in the shell and not exported: the engine never got it",
        )


def one(reading: Reading) -> Launch | None:
    """The one engine; None with the reason in the report."""
    report = reading.report
    strange = [(name, line) for name, line in reading.others if name not in _HARMLESS]
    for name, line in [one for one in strange if one[0].startswith("-")]:
        strange.remove((name, line))
        report.refuse(
            f"line {line} begins with {name}, and the command ended in the line before it",
            hint="a comment, an empty line or a blank after the \\ cuts a command off",
        )
    if len(reading.launches) > 1:
        report.refuse(
            f"starts {len(reading.launches)} engines",
            hint="import each command by itself, and give each its name: --name SERVICE",
        )
        return None
    if reading.launches:
        if strange:
            names = ", ".join(dict.fromkeys(f"{name} (line {line})" for name, line in strange))
            report.refuse(
                f"also runs {names}, which a service does not",
                hint="import the launch command alone; do the rest by hand or in a role",
            )
        if tame := sorted({name for name, _ in reading.others if name in _HARMLESS}):
            report.note("dropped", ", ".join(tame), "beside the engine; a service needs none of it")
        for path in reading.unread:
            report.note(
                "told",
                path,
                "is read by the script, and was not given here: what it sets "
                "is not known; give it with --file PATH=COPY",
            )
        tell_assumed(reading.assumed, reading.launches[0], report)
        return reading.launches[0]
    if reading.piped:
        return None  # told: only a run knows what it starts
    if reading.unread:
        report.refuse(
            f"the engine is started by {reading.unread[0]}, which was not given",
            hint=f"give it: --file {reading.unread[0]}=COPY, or import the running process",
        )
        return None
    if reading.strangers and reading.strangers[0].argv:
        return reading.strangers[0]
    return Launch([name for name, _ in reading.others[:1]])


def tell_assumed(assumed: Mapping[str, str], launch: Launch, report: Report) -> None:
    """Defaults that stand in the launch. Who runs the text may have set another value."""
    image = launch.container.image if launch.container else ""
    there = [*launch.argv, *launch.env.values(), image]
    for name, default in assumed.items():
        if whole(default) and all(any(w in text for text in there) for w in default.split()):
            shown = "***" if by_name(name) else default or "nothing"
            report.note(
                "told",
                f"{name} is not set in the text",
                f"its default is taken: {shown}; if it was another value: --var {name}=VALUE",
            )


def _around(simple: Simple, before: str, report: Report) -> None:
    if before == "||":
        report.refuse("runs only if the command before it fails")
    if simple.after == "&":
        report.note("dropped", "&", "systemd keeps the service running")
    if simple.after == "|":
        report.note("dropped", "| …", "what the engine prints is in the journal: opsctl logs")
    if before == "|":
        report.note("dropped", "… |", "the engine reads nothing from its standard input")
    if simple.redirects:
        report.note(
            "dropped",
            theirs(" ".join(simple.redirects)),
            "what the engine prints is in the journal: opsctl logs",
        )


def _command(simple: Simple, text: str, scope: Scope, reading: Reading, depth: int) -> None:
    if not simple.words:
        _assign(simple, scope, reading, scope)
        return
    inner = Scope(
        dict(scope.values), set(scope.exported), scope.arguments, scope.cwd, reading.assumed
    )
    _assign(simple, scope, reading, inner, export=True)
    words = mended(simple.words, text, reading.report)
    first = simple.words[0].bare or ""
    if first in _EXPORTS:
        _export(words[1:], scope, reading)
        return
    argv = [field for word in words for field in expand(word, inner)]
    for name in reading.assumed.keys() & inner.values.keys() - {a.name for a in simple.assignments}:
        scope.values.setdefault(name, inner.values[name])  # of ${NAME:=DEFAULT}
    if simple.assignments and argv and argv[0].startswith("-"):
        argv = _labelled(simple, inner, argv, reading.report)
    if argv and not _builtin(argv, scope, reading, simple.line, depth):
        program(argv, simple, inner, reading, depth)


def _labelled(simple: Simple, inner: Scope, argv: list[str], report: Report) -> list[str]:
    """command=python3 -m …: a log's own label before what it ran."""
    label = simple.assignments[-1]
    value = inner.values.pop(label.name, "")
    report.note("dropped", f"{label.name}=", "a label of the log that it was copied from")
    return [*str(value).split(), *argv]


def _assign(
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


def _export(words: list[Word], scope: Scope, reading: Reading) -> None:
    for word in words:
        for text in [expand_one(word, scope)]:
            name, equals, value = text.partition("=")
            if text.startswith("-"):
                continue
            if equals:
                scope.values[name] = value
            scope.exported.add(name)


def _builtin(argv: list[str], scope: Scope, reading: Reading, line: int, depth: int) -> bool:
    """What changes how the rest is read. Answers whether it was one of these."""
    name = argv[0]
    if name in ("cd", "pushd"):
        target = next((word for word in argv[1:] if not word.startswith("-")), "")
        here = scope.cwd or ""
        known = target.startswith("/") or (here and whole(target))
        scope.cwd = str(PurePosixPath(here, target)) if known and whole(target) else None
        return True
    if name in ("source", "."):
        _source(argv, scope, reading, depth)
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
    if left.script is not None or left.script_file is not None:
        _nested(left, inner, reading, report, depth)
        return
    name = PurePosixPath(left.argv[0]).name if left.argv else ""
    if name in docker.PROGRAMS:
        _container(left, inner, reading, report, simple)
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
        if name not in _HARMLESS:
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
    return Scope(values, exported | set(left.env), scope.arguments, scope.cwd, scope.assumed)


def _launch(left: Unwrapped, scope: Scope, reading: Reading) -> Launch:
    return Launch(
        left.argv,
        scope.env(),
        cwd=scope.cwd,
        user=left.user,
        root=reading.root,
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
    launch = docker.run(left.argv, env, reading.files, reading.mounts, reading.report)
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
