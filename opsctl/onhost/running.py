"""What runs SGLang on this host, by whoever's hand: units, bare processes, containers. Changes
nothing, and runs nothing of what it finds.

Arguments, variables and units may hold keys, and must arrive exactly: they travel sealed (see
`process.sealed`), through the connection only.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from opsctl.onhost import gpus, hostfacts, process, systemd, unitfacts
from opsctl.onhost.store import Refused
from opsctl.onhost.systemd import Systemd

_MODULES = ("sglang.launch_server", "sglang.srt.entrypoints.http_server")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_CONTAINER = re.compile(
    r"(?:(docker|libpod|cri-containerd|crio|nerdctl)-|/(docker|libpod)/|/)([0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
_FILES = re.compile(r"(/.*?) \(ignore_errors=(?:yes|no)\)")
_UNIT_SETTINGS = ("User", "Group", "Restart", "Type", "StandardOutput", "EnvironmentFiles")
_LARGEST = 1 << 20  # bytes of one file
_INSPECT = 20.0  # seconds
TOOLS = {"docker": "docker", "libpod": "podman", "nerdctl": "nerdctl"}


def running(manager: Systemd, unit: str = "", pid: int = 0, container: str = "") -> Dict[str, Any]:
    """{"found": […], "gpus", "driver"}: all of them, or the one that is named. Raises Refused."""
    found: List[Dict[str, Any]] = []
    if unit:
        name = unit if "." in unit.rsplit("/", 1)[-1] else f"{unit}.service"
        found = [of_unit(manager, name)]
    else:
        entries = [_entry(manager, one) for one in ([pid] if pid else servers())]
        found = [entry for entry in entries if entry]
    if pid and not found:
        raise Refused(f"there is no process {pid}", hint="pgrep -af sglang")
    if container:
        found = [entry for entry in found if container in _names(entry)]
        if not found:
            raise Refused(f"no container {container} runs an SGLang server", hint="docker ps")
    return {"found": found, **gpus.report()}


def _names(entry: Dict[str, Any]) -> List[str]:
    told = entry.get("container") or {}
    return [told["id"], told["id"][:12], str(told.get("name"))] if told else []


# -- processes ------------------------------------------------------------------------------------


def servers() -> List[int]:
    """Main processes of engines: those whose forefathers are none. Forked ranks have the same
    command line as their parent, and a shell or a docker client that holds one is no Python."""
    words = {pid: _cmdline(pid) for pid in _pids()}
    found = {pid for pid, argv in words.items() if is_server(argv)}
    return sorted(pid for pid in found if not _descends(pid, found))


def _pids() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _cmdline(pid: int) -> List[str]:
    return hostfacts.read(f"/proc/{pid}/cmdline").split("\0")[:-1]


def is_server(argv: Sequence[str]) -> bool:
    """Whether a command line is SGLang's server, run by Python."""
    if not argv or not _PYTHON.fullmatch(os.path.basename(argv[0])):
        return False
    for at, word in enumerate(argv[1:8], 1):
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word == "-m":
            return following in _MODULES or (
                following.startswith("sglang") and "serve" in argv[at:]
            )
        if word[:2] == "-m" and word[2:] in _MODULES:
            return True
        name = os.path.basename(word)
        if name == "sglang" and following == "serve":
            return True
        if name == "launch_server.py" or re.fullmatch(r"/etc/opsctl/.*/launch\.py", word):
            return True
    return False


def _descends(pid: int, found: "set[int]") -> bool:
    seen = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        pid = _parent(pid)
        if pid in found:
            return True
    return False


def _parent(pid: int) -> int:
    match = re.search(r"^PPid:\s*(\d+)", hostfacts.read(f"/proc/{pid}/status"), re.MULTILINE)
    return int(match[1]) if match else 0


def _entry(manager: Systemd, pid: int) -> Optional[Dict[str, Any]]:
    """One engine, by its main process: whose it is follows from its control group."""
    told = process.of(pid)
    if told is None:
        return None
    kind, name, runtime = owner(told["cgroup"])
    entry: Dict[str, Any] = {
        "kind": kind,
        "name": name,
        "by": _started_by(pid) if kind == "process" else "",
        "process": process.sealed(told),
        **_summary(told),
        "unit": None,
        "container": None,
    }
    if kind == "unit":
        entry["unit"] = _unit(manager, name)
    elif kind == "container":
        entry["container"] = _container(runtime, name)
    return entry


def _summary(told: Dict[str, Any]) -> Dict[str, Any]:
    """What a list of them shows; none of it is secret."""
    argv = told["argv"]
    return {
        "pid": told["pid"],
        "user": told["user"],
        "started": told["started"],
        "cgroup": told["cgroup"],
        "engine": told["engine"],
        "limits": told["limits"],
        "model": _option(argv, "--model-path", "--model"),
        "port": _option(argv, "--port"),
    }


def _option(argv: Sequence[str], *names: str) -> str:
    found = ""
    for at, word in enumerate(argv):
        name, sign, value = word.partition("=")
        if name in names:
            found = value if sign else (argv[at + 1] if at + 1 < len(argv) else "")
    return found


def owner(cgroup: str) -> Tuple[str, str, str]:
    """(kind, name, runtime) of a control group: a unit of the system, a container, or a process
    that nobody looks after (a login's session, a user's own units)."""
    container = _CONTAINER.search(cgroup)
    if container:
        return "container", container[3], container[1] or container[2] or ""
    last = [part for part in cgroup.split("/") if part.endswith(".service")]
    if last and "user@" not in cgroup and "/user.slice/" not in cgroup:
        return "unit", last[-1], ""
    return "process", cgroup.rsplit("/", 1)[-1], ""


def _started_by(pid: int) -> str:
    """What keeps a process alive that no unit looks after: its forefathers tell."""
    names: List[str] = []
    while pid > 1 and len(names) < 20:
        pid = _parent(pid)
        names.append(hostfacts.parse_status(hostfacts.read(f"/proc/{pid}/status"))["name"])
    for word in ("screen", "tmux", "supervisord", "pm2", "sshd", "cron"):
        if any(name.lower().startswith(word) for name in names):
            return word
    return "nohup or the like" if names[:1] in (["systemd"], []) else names[0]


# -- units ----------------------------------------------------------------------------------------


def of_unit(manager: Systemd, name: str) -> Dict[str, Any]:
    """The unit with its engine: its main process, or, behind a shell, a descendant of it."""
    state = manager.show(name)
    if state.load != "loaded":
        raise Refused(f"there is no unit {name} on this host", hint="systemctl list-units")
    inside = hostfacts.cgroup_pids(state.cgroup)
    engines = [pid for pid in servers() if pid in inside]
    entry = _entry(manager, engines[0]) if engines else None
    if entry is None:
        entry = {"kind": "unit", "name": name, "by": "", "process": None, "container": None}
        main = process.of(state.main_pid) if state.main_pid else None
        entry["main"] = os.path.basename(main["argv"][0]) if main and main["argv"] else ""
    return {**entry, "kind": "unit", "name": name, "unit": _unit(manager, name)}


def _unit(manager: Systemd, name: str) -> Dict[str, Any]:
    """What systemd knows of it; its files, and those with its variables, sealed."""
    state = manager.show(name)
    shown = _shown(name)
    paths = [state.properties.get("FragmentPath", ""), *state.dropins]
    texts = [[path, text] for path in paths if (text := _text(path)) is not None]
    variables = list(_FILES.findall(shown.get("EnvironmentFiles", "")))
    told = {"texts": texts, "files": {p: t for p in variables if (t := _text(p)) is not None}}
    return {
        "name": name,
        "state": state.active,
        "sub": state.sub,
        "main_pid": state.main_pid,
        "invocation": state.invocation,
        "enabled": state.properties.get("UnitFileState", ""),
        "restarts": state.restarts,
        "fragment": paths[0],
        "dropins": state.dropins,
        "environment_files": variables,
        "changed": max([_changed(path) for path in [*paths, *variables]], default=0.0),
        "stale": state.properties.get("NeedDaemonReload") == "yes",
        "user": shown.get("User") or "root",
        "restart": shown.get("Restart", ""),
        "output": shown.get("StandardOutput", ""),
        "limits": unitfacts.of(state.properties),
        "sealed": process.sealed(told),
    }


def _shown(name: str) -> Dict[str, str]:
    wanted = ",".join(_UNIT_SETTINGS)
    _, out, _ = systemd.call(["systemctl", "show", f"--property={wanted}", "--", name], 20)
    found: Dict[str, str] = {}
    for line in out.splitlines():
        key, _, value = line.partition("=")
        found[key] = f"{found[key]}\n{value}" if key in found else value
    return found


def _text(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return None


def _changed(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


# -- containers -----------------------------------------------------------------------------------


def _container(runtime: str, name: str) -> Dict[str, Any]:
    """What its own tool tells; `sealed` is None if that is not here or does not answer."""
    found: Dict[str, Any] = {"id": name, "name": "", "runtime": runtime, "why": "", "sealed": None}
    tools = [TOOLS[runtime]] if runtime in TOOLS else ["docker", "podman"] if not runtime else []
    for tool in tools:
        try:
            code, out, err = systemd.call([tool, "inspect", name], _INSPECT)
            told = json.loads(out)[0] if code == 0 else None
        except (systemd.CallFailed, ValueError, IndexError) as error:
            found["why"] = str(error)
            continue
        if told:
            name_told = str(told.get("Name", "")).lstrip("/")
            return {**found, "name": name_told, "runtime": tool, "sealed": process.sealed(told)}
        found["why"] = (err.strip().splitlines() or [f"exit {code}"])[-1]
    if not tools:
        found["why"] = f"opsctl asks no tool of {runtime}: crictl inspect {name[:12]} shows it"
    return found
