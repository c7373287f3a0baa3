"""Whether a unit of other hands is an engine's, so that it may be stopped with its engine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Callable, Iterable, List

from opsctl.onhost import files, hostfacts, owners, process, running
from opsctl.onhost.systemd import UnitState

_PREFIX = re.compile(r"^[@\-:+!|]+")
_SERVER = re.compile(
    r"\bsglang\.(?:launch_server|srt\.entrypoints\.http_server)\b|\blaunch_server\.py\b"
    r"|\bsglang[\"']?\s+serve\b|-m\s*sglang\S*\s+serve\b"
)
_LARGEST = 64 << 10  # bytes of a script that a person wrote
# Clients, whose engine runs in a group of the container's own.
_CLIENTS = {*owners.TOOLS.values(), "docker-compose", "podman-compose"}


def problem(state: UnitState, texts: Iterable[str]) -> str:
    """Why the unit's end is not the end of an engine alone; "" if it is. `texts`: the unit's file,
    and its drop-ins in the order in which they count. What runs decides, by the check that an
    import makes; where nothing runs, the command."""
    told = process.of(state.main_pid) if state.main_pid else None
    if told is None:
        return "" if names_server(texts) else "its ExecStart= starts no SGLang server"
    argv, name = told["argv"], os.path.basename(told["exe"] or "".join(told["argv"][:1]))
    if running.is_server(argv):
        return ""
    if owners.is_wrapper(told["exe"], argv):
        inside = hostfacts.cgroup_pids(state.cgroup)
        if names_server(texts) or any(pid in inside for pid in running.servers()):
            return ""
        return f"its main process is {name}, and no SGLang server runs in it"
    if name in _CLIENTS and names_server(texts):
        return ""
    return f"its main process is {name}, and not the engine"


def names_server(texts: Iterable[str]) -> bool:
    """Whether a command of the unit, or a script that it starts, names SGLang's server."""
    return any(_SERVER.search(command) or _scripted(command) for command in commands(texts))


def commands(texts: Iterable[str]) -> List[str]:
    """What ExecStart= says at last: an empty one takes back those before."""
    return _values([re.sub(r"\\\n", " ", text) for text in texts], "ExecStart")


def front(texts: Iterable[str]) -> str:
    """The program that stands before the engine in the command (numactl, a shell, a script); ""
    if none does. Its name alone: of `env` and shells the words may hold keys."""
    for command in commands(texts)[-1:]:
        words = _PREFIX.sub("", command).split()
        name = os.path.basename(words[0].strip("\"'")) if words else ""
        return "" if owners.PYTHON.fullmatch(name) or name == "sglang" else name
    return ""


def _scripted(command: str) -> bool:
    paths = [word.lstrip("@-:+!").strip("\"'") for word in command.split()]
    return any(_SERVER.search(_script(path)) for path in paths if path.startswith("/"))


def _script(path: str) -> str:
    try:
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST:
            return (files.read(Path(path)) or b"").decode("utf-8", "replace")
    except OSError:
        pass
    return ""


def missing(
    texts: Iterable[str], exists: Callable[[str], bool], user_exists: Callable[[str], bool]
) -> List[str]:
    """What the unit needs for its start, and is not there: then systemd fails it at once. Of what
    stands behind a specifier, a variable or a pattern nothing is said."""
    whole = [re.sub(r"\\\n", " ", text) for text in texts]
    found = []
    if _values(whole, "RootDirectory") or _values(whole, "RootImage"):
        return []  # paths are of another tree
    for value in _values(whole, "EnvironmentFile"):
        if not value.startswith("-") and _plain(value) and not exists(value):
            found.append(f"EnvironmentFile={value} is not there")
    for command in commands(whole):
        program = _PREFIX.sub("", command).split()[0].strip("\"'")
        ignored = "-" in command[: len(command) - len(_PREFIX.sub("", command))]
        if not ignored and program.startswith("/") and _plain(program) and not exists(program):
            found.append(f"{program} of ExecStart= is not there")
    for folder in _values(whole, "WorkingDirectory")[-1:]:
        if folder.startswith("/") and _plain(folder) and not exists(folder):
            found.append(f"WorkingDirectory={folder} is not there")
    dynamic = any(value in ("yes", "true", "on", "1") for value in _values(whole, "DynamicUser"))
    for user in _values(whole, "User")[-1:]:
        if not dynamic and _plain(user) and not user.isdigit() and not user_exists(user):
            found.append(f"there is no user {user}")
    return found


def _plain(value: str) -> bool:
    return not any(sign in value for sign in "%$*?[")


def _values(texts: Iterable[str], key: str) -> List[str]:
    """As systemd reads a list: an empty value takes back those before."""
    found: List[str] = []
    for text in texts:
        for match in re.finditer(rf"^[ \t]*{key}[ \t]*=(.*)$", text, re.M):
            value = match[1].strip()
            found = [*found, value] if value else []
    return found
