"""What a shell's text comes to: its one engine, or why there is none; and what stood beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from opsctl.importing.marks import theirs, whole
from opsctl.importing.model import Launch, Report
from opsctl.importing.secretnames import by_name
from opsctl.importing.shell import Scope, Simple

# They prepare, wait or tell; systemd, the roles and the journal do that now.
HARMLESS = {
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
    packages: list[str] = field(default_factory=list)  # of the engine, that were installed
    exporting: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)  # what the operator says of them
    assumed: dict[str, str] = field(default_factory=dict)  # defaults, by their variables


def one(reading: Reading) -> Launch | None:
    """The one engine; None with the reason in the report."""
    report = reading.report
    strange = [(name, line) for name, line in reading.others if name not in HARMLESS]
    for name, line in [one for one in strange if one[0].startswith("-")]:
        strange.remove((name, line))
        report.refuse(
            f"line {line} begins with {theirs(name)}, and the command ended in the line before it",
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
            names = ", ".join(
                dict.fromkeys(f"{theirs(name)} (line {line})" for name, line in strange)
            )
            report.refuse(
                f"also runs {names}, which a service does not",
                hint="import the launch command alone; do the rest by hand or in a role",
            )
        if tame := sorted({name for name, _ in reading.others if name in HARMLESS}):
            report.note("dropped", ", ".join(tame), "beside the engine; a service needs none of it")
        for path in reading.unread:
            report.note(
                "told",
                theirs(path),
                "is read by the script, and was not given here: what it sets "
                "is not known; give it with --file PATH=COPY",
            )
        tell_assumed(reading.assumed, reading.launches[0], report)
        return reading.launches[0]
    if reading.piped:
        return None  # told: only a run knows what it starts
    if reading.unread:
        report.refuse(
            f"the engine is started by {theirs(reading.unread[0])}, which was not given",
            hint=f"give it: --file {theirs(reading.unread[0])}=COPY, or import the running process",
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


def around(simple: Simple, before: str, report: Report) -> None:
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


def kept_back(scope: Scope, reading: Reading) -> None:
    """A=1 alone sets a variable of the shell: the engine never gets it. What the operator gave for
    the text's own variables is none of the text's."""
    ours = re.compile(r"(SGLANG|NCCL|CUDA|HF|MC|MOONCAKE|TORCH|TRITON|FLASHINFER)_[A-Z0-9_]+")
    names = [
        n
        for n in scope.values
        if n not in scope.exported
        and ours.fullmatch(n)
        and scope.values[n] != reading.variables.get(n)
    ]
    if names:
        reading.report.note(
            "dropped",
            ", ".join(names),
            "set in the shell and not exported: the engine never got it",
        )
