"""Whose a process is: a unit's, a container's, a user's own systemd's, or nobody's."""

from __future__ import annotations

import os
import pwd
import re
from typing import List, Sequence, Tuple

from opsctl.onhost import hostfacts

_CONTAINER = re.compile(
    r"(?:(docker|libpod|cri-containerd|crio|nerdctl)-|/(docker|libpod)/|/)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
_USER_UNIT = re.compile(r"/user@([0-9]+)\.service/(?:.*/)?([^/]+\.service)(?:/|$)")
PYTHON = re.compile(r"(python|pypy)[0-9.]*")
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # Python's own options
# Programs that run one command and end with it: what a unit starts by them is its own.
_WRAPPERS = {
    *("sh", "bash", "dash", "zsh", "ksh", "busybox", "env", "numactl", "taskset", "nice", "ionice"),
    *("chrt", "stdbuf", "timeout", "setsid", "sudo", "su", "runuser", "setpriv", "tini"),
    *("dumb-init", "systemd-cat", "uv", "nsys", "catatonit"),
}
TOOLS = {"docker": "docker", "libpod": "podman", "nerdctl": "nerdctl"}
_KEEPERS = ("screen", "tmux", "supervisord", "pm2", "sshd", "cron")


def owner(cgroup: str) -> Tuple[str, str, str]:
    """(kind, name, runtime) of a control group: a unit of the system, a container, or a process
    that no unit of the system looks after (a login's session, a user's own units)."""
    container = _CONTAINER.search(cgroup)
    if container:
        return "container", container[3], container[1] or container[2] or ""
    last = [part for part in cgroup.split("/") if part.endswith(".service")]
    if last and "user@" not in cgroup and "/user.slice/" not in cgroup:
        return "unit", last[-1], ""
    return "process", cgroup.rsplit("/", 1)[-1], ""


def user_unit(cgroup: str) -> Tuple[str, str]:
    """(user, unit) of a unit that a user's own systemd runs (systemctl --user); ("", "") else."""
    found = _USER_UNIT.search(cgroup)
    return (_user(int(found[1])), found[2]) if found else ("", "")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def is_wrapper(exe: str, argv: Sequence[str]) -> bool:
    """Whether a unit's main process, behind which the engine runs, is there for it alone. Such a
    unit may be stopped with its engine; that of a supervisor, cron or sshd must not be."""
    name = os.path.basename(exe)
    if not PYTHON.fullmatch(name):
        return name in _WRAPPERS
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at][:2] in ("-c", "-m"):
            return True
        at += 2 if argv[at] in WITH_VALUE else 1
    return at < len(argv) and argv[at].endswith(".py")


def parent(pid: int) -> int:
    match = re.search(r"^PPid:\s*(\d+)", hostfacts.read(f"/proc/{pid}/status"), re.MULTILINE)
    return int(match[1]) if match else 0


def keeper(pid: int) -> Tuple[str, str]:
    """What keeps a process alive that no unit of the system looks after, as its forefathers tell,
    and how to end it for good."""
    user, unit = user_unit(hostfacts.read(f"/proc/{pid}/cgroup"))
    if unit:
        stop = f"as {user}: systemctl --user disable --now {unit}"
        return f"{unit} of {user}'s own systemd", stop
    names: List[str] = []
    above = pid
    while above > 1 and len(names) < 20:
        above = parent(above)
        names.append(hostfacts.parse_status(hostfacts.read(f"/proc/{above}/status"))["name"])
    for word in _KEEPERS:
        if any(name.lower().startswith(word) for name in names):
            if word in ("supervisord", "pm2"):
                return word, f"stop it in {word}, which else starts it again"
            return word, f"kill {pid}"
    return "nohup or the like" if names[:1] in (["systemd"], []) else names[0], f"kill {pid}"


def told(pid: int, engine: bool) -> str:
    """A process that holds what a start needs, and how it gives it back. `engine`: it is SGLang's
    server: then a release can take its unit's place."""
    group = hostfacts.read(f"/proc/{pid}/cgroup")
    who = f"PID {pid} ({hostfacts.read(f'/proc/{pid}/comm').strip()})"
    kind, name, runtime = owner(group.strip().rsplit("\n", 1)[-1])
    if kind == "unit":
        if engine and "@" in name:  # a template's: takes_over names no instance
            return f"{who} of {name}, an SGLang server: first systemctl disable --now {name}"
        advice = f"takes_over: {name} in the description replaces it, if that unit is its own"
        return f"{who} of {name}" + (f", an SGLang server: {advice}" if engine else "")
    if kind == "container":
        tool = TOOLS.get(runtime, "docker")
        who += f" of container {name[:12]}"
        advice = f"{tool} update --restart=no {name[:12]}; {tool} stop {name[:12]}"
    else:
        by, advice = keeper(pid)
        who += f" of {by}" if user_unit(group)[1] else f", in no unit ({by})"
    if engine:
        who += ", an SGLang server, which a takeover has to start anew"
    return f"{who}; stop it first: {advice}"
