"""Programs that start the engine for somebody: taken off, one by one, and told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from opsctl.importing.marks import theirs
from opsctl.importing.model import Report
from opsctl.importing.packages import pinned
from opsctl.importing.transient import transient
from opsctl.importing.unit.fatetexts import BOUND, PRIORITY

_DETACH = "systemd keeps the service running, and starts it again"
_RANKS = "SGLang starts one process a rank by itself"
_PROFILE = "a profiler or tracer is no part of a service"


@dataclass(frozen=True)
class Wrapper:
    """`valued`: options whose value is the next word; `skip`: words after the options that are its
    own; `kind`, `why`: of the note."""

    kind: str
    why: str
    valued: frozenset[str] = frozenset()
    skip: int = 0


def _w(kind: str, why: str, valued: str = "", skip: int = 0) -> Wrapper:
    return Wrapper(kind, why, frozenset(valued.split()), skip)


_RUN = _w(
    "changed",
    "the environment that it finds: check engine.root",
    "-n --name -p --prefix --cwd --python --project --directory --with --env-file --extra "
    "--group --package --index --default-index --index-url --extra-index-url --with-requirements "
    "--with-editable",
)
_TOOL = _w(
    "changed",
    _RUN.why,
    "--from --with -w --spec --python -p --index --default-index --index-url -i --extra-index-url "
    "--find-links -f --with-requirements --with-editable --pip-args --env-file --directory",
)
_NUMA = "-N -m -C -i -p -P -l --cpunodebind --membind --physcpubind --interleave --preferred"
WRAPPERS: dict[str, Wrapper] = {
    "nohup": _w("dropped", _DETACH),
    "setsid": _w("dropped", _DETACH),
    "exec": _w("dropped", "systemd starts the engine itself", "-a"),
    "command": _w("dropped", "systemd starts the engine itself"),
    "builtin": _w("dropped", "systemd starts the engine itself"),
    "time": _w("dropped", "the start's time is told by opsctl status", "-f -o"),
    "stdbuf": _w("dropped", "opsctl's unit has PYTHONUNBUFFERED=1", "-i -o -e"),
    "unbuffer": _w("dropped", "opsctl's unit has PYTHONUNBUFFERED=1"),
    "tini": _w("dropped", "systemd clears up after the engine", "-s -p"),
    "dumb-init": _w("dropped", "systemd clears up after the engine"),
    "catchsegv": _w("dropped", _PROFILE),
    "nvidia_entrypoint.sh": _w("dropped", "the image's own start script"),
    "nice": _w(*PRIORITY, "-n --adjustment"),
    "ionice": _w(*PRIORITY, "-c -n -p --class --classdata"),
    "chrt": _w(*PRIORITY, "", 1),
    "taskset": _w(*BOUND, "", 1),
    "numactl": _w(*BOUND, _NUMA),
    "timeout": _w("lost", "a service runs until it is stopped", "-s -k --signal --kill-after", 1),
    "flock": _w("dropped", "there is one unit of a name", "-w -E", 1),
    "torchrun": _w(
        "lost",
        _RANKS,
        "--nproc-per-node --nproc_per_node --nnodes --node-rank "
        "--node_rank --master-addr --master_addr --master-port --master_port "
        "--rdzv-backend --rdzv-endpoint --rdzv-id",
    ),
    "srun": _w("lost", _RANKS, "-n -N -c -p -w -t -J -o -e --gres --ntasks --nodes --partition"),
    "mpirun": _w("lost", _RANKS, "-n -np -N -x -H --host --hostfile --mca"),
    "mpiexec": _w("lost", _RANKS, "-n -np -N -x -H --host --hostfile"),
    "strace": _w("lost", _PROFILE, "-o -e -p -s"),
    "nsys": _w(
        "lost",
        _PROFILE,
        "-o -t -s -w -f -d -y -c --output --trace --sample --duration --delay --capture-range",
    ),
    "ncu": _w("lost", _PROFILE, "-o -k -c"),
}
# The first words of some are verbs of theirs.
_VERBS: dict[tuple[str, ...], Wrapper] = {
    ("uv", "tool", "run"): _TOOL,
    ("uvx",): _TOOL,
    ("pipx", "run"): _TOOL,
    **{(name, "run"): _RUN for name in ("uv", "poetry", "pipenv", "pixi")},
    **{(name, "run"): _RUN for name in ("conda", "micromamba", "mamba")},
    ("nsys", "profile"): WRAPPERS["nsys"],
    ("accelerate", "launch"): WRAPPERS["torchrun"],
}
SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "ash"}
_SUDO_VALUED = {
    *("-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R"),
    *("--user", "--group", "--host", "--prompt", "--chdir"),
}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass
class Unwrapped:
    """`argv`: what is left. `script`, `arguments`: the text that a shell would read, and $1 …;
    `script_file`: its file, if it is not known here. `unset`: variables that are taken away.
    `cwd`: the folder that one of them changes to."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    clear: bool = False
    user: str | None = None
    cwd: str | None = None
    script: str | None = None
    script_file: str | None = None
    arguments: list[str] = field(default_factory=list)
    wrapped: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)  # of the engine, that wrappers name


def unwrap(argv: list[str], report: Report) -> Unwrapped:
    now = Unwrapped(list(argv))
    for _ in range(20):
        before = list(now.argv)
        if not now.argv or now.script is not None or now.script_file is not None:
            break
        _one(now, report)
        if now.argv == before:
            break
    return now


def _one(now: Unwrapped, report: Report) -> None:
    name = PurePosixPath(now.argv[0]).name
    if name == "env":
        _env(now)
    elif name in ("sudo", "doas"):
        _sudo(now, report)
    elif name == "systemd-run":
        _transient(now, report)
    elif name in ("su", "runuser"):
        _su(now, report)
    elif name in SHELLS:
        _shell(now)
    elif name in ("screen", "tmux"):
        _terminal(now, name, report)
    elif name == "pm2" and now.argv[1:2] == ["start"]:
        _pm2(now, report)
    elif verb := next((v for v in _VERBS if v == (name, *now.argv[1 : len(v)])), ()):
        _take(now, " ".join(verb), _VERBS[verb], len(verb), report)
    elif name in WRAPPERS:
        _take(now, name, WRAPPERS[name], 1, report)


def _take(now: Unwrapped, name: str, wrapper: Wrapper, at: int, report: Report) -> None:
    start, words = at, now.argv
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-", "--"):
        if words[at] == "-m" and "-m" not in wrapper.valued:
            break  # Python's own: torchrun -m MODULE
        at += 2 if words[at] in wrapper.valued else 1
    if words[at : at + 1] == ["--"]:
        at += 1
    at = min(at + wrapper.skip, len(words))
    report.note(wrapper.kind, theirs(" ".join([name, *words[start:at]])), wrapper.why)
    now.wrapped.append(name)
    now.packages += pinned(words[start:at])
    now.argv = words[at:]
    if wrapper is _TOOL and now.argv and pinned(now.argv[:1]):  # the program of this package
        now.packages.append(now.argv[0])
        now.argv = ["sglang", *now.argv[1:]]
    if wrapper in (_RUN, _TOOL) or wrapper.why == _RANKS:
        now.argv = ["python", *now.argv] if now.argv[:1] == ["-m"] else now.argv


def _env(now: Unwrapped) -> None:
    words = now.argv[1:]
    while words:
        word = words[0]
        if word in ("-i", "-", "--ignore-environment"):
            now.clear, words = True, words[1:]
        elif word in ("-u", "--unset") and len(words) > 1:
            now.unset.append(words[1])
            words = words[2:]
        elif word.startswith("--unset="):
            now.unset.append(word.partition("=")[2])
            words = words[1:]
        elif word in ("-C", "--chdir") and len(words) > 1:
            now.cwd, words = words[1], words[2:]
        elif word.startswith("--chdir="):
            now.cwd, words = word.partition("=")[2], words[1:]
        elif match := _ASSIGNMENT.fullmatch(word):
            now.env[match[1]] = match[2]
            words = words[1:]
        elif word.startswith("-") and word != "-S":
            words = words[1:]
        else:
            break
    now.argv = words


def _sudo(now: Unwrapped, report: Report) -> None:
    words, user = now.argv[1:], "root"
    while words and (words[0].startswith("-") or _ASSIGNMENT.fullmatch(words[0])):
        word = words.pop(0)
        if match := _ASSIGNMENT.fullmatch(word):
            now.env[match[1]] = match[2]
        elif word == "--":
            break
        elif word in _SUDO_VALUED and words:
            value = words.pop(0)
            user = value if word in ("-u", "--user") else user
            now.cwd = value if word in ("-D", "--chdir") else now.cwd
        elif word.startswith("--chdir="):
            now.cwd = word.partition("=")[2]
        elif word.startswith("--user="):
            user = word.partition("=")[2]
        elif word.startswith("-u") and len(word) > 2:
            user = word[2:]
    now.user, now.argv = user, words
    now.wrapped.append("sudo")
    report.note(
        "dropped", f"sudo (as {theirs(user)})", "systemd starts the service as its own user"
    )


def _transient(now: Unwrapped, report: Report) -> None:
    left = transient(now.argv[1:], report)
    now.argv, now.env = left.argv, {**now.env, **left.env}
    now.user, now.cwd = left.user or now.user, left.cwd or now.cwd
    now.wrapped.append("systemd-run")


def _su(now: Unwrapped, report: Report) -> None:
    words, user, script = now.argv[1:], "root", None
    while words:
        word = words.pop(0)
        if word in ("-c", "--command", "--session-command") and words:
            script = words.pop(0)
        elif word in ("-s", "--shell", "-g", "-G", "-w") and words:
            words.pop(0)
        elif word in ("-u", "--user") and words:
            user = words.pop(0)
        elif word == "--":
            break
        elif not word.startswith("-"):
            user = word
    now.user = user
    now.wrapped.append("su")
    report.note("dropped", f"su (as {theirs(user)})", "systemd starts the service as its own user")
    now.script, now.argv = script, words


def _shell(now: Unwrapped) -> None:
    words = now.argv[1:]
    with_text = False
    while words and words[0].startswith(("-", "+")) and words[0] != "--":
        word = words.pop(0)
        if word in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") and words:
            words.pop(0)
        elif not word.startswith("--") and "c" in word:
            with_text = True
            if word.endswith("o") and words:
                words.pop(0)
            break
    if words[:1] == ["--"]:
        words.pop(0)
    now.wrapped.append(PurePosixPath(now.argv[0]).name)
    if not words:
        now.argv = []
        return
    if with_text:
        now.script, now.arguments = words[0], words[2:]
    else:
        now.script_file, now.arguments = words[0], words[1:]
    now.argv = []


def _terminal(now: Unwrapped, name: str, report: Report) -> None:
    """screen -dmS NAME COMMAND …; tmux new-session -d -s NAME COMMAND, one word being a script."""
    words = now.argv[1:]
    if name == "tmux" and words[:1] and words[0] in ("new-session", "new"):
        words = words[1:]
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if (word[-1:] in "sSnctxyTF" and not word.startswith("--")) and words:
            words.pop(0)
    report.note("dropped", name, f"a terminal that nobody may close; {_DETACH}")
    now.wrapped.append(name)
    if len(words) == 1:
        now.script, now.argv = words[0], []
    else:
        now.argv = words


def _pm2(now: Unwrapped, report: Report) -> None:
    words = now.argv[2:]
    program = words[0] if words else ""
    after = words[words.index("--") + 1 :] if "--" in words else []
    report.note("dropped", "pm2", _DETACH)
    now.wrapped.append("pm2")
    now.argv = [program, *after]
