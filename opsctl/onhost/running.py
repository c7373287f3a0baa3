"""What runs SGLang on this host, by whoever's hand: units, bare processes, containers. Changes
nothing, and runs nothing of what it finds.

Arguments, variables and units may hold keys, and must arrive exactly: they travel sealed (see
`process.sealed`), through the connection only.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence

from opsctl.onhost import files, gpus, hostfacts, logins, owners, process, systemd, unitfacts
from opsctl.onhost.store import Refused
from opsctl.onhost.systemd import Systemd

_MODULES = ("sglang.launch_server", "sglang.srt.entrypoints.http_server")
_OURS = re.compile(r"/etc/opsctl/.*/launch\.py")
_FILES = re.compile(r"(/.*?) \(ignore_errors=(?:yes|no)\)")
_SECRETS = re.compile(r"^LoadCredential=[^:]+:(/etc/opsctl/\S+)$")
_UNIT_SETTINGS = ("User", "Group", "Restart", "Type", "StandardOutput", "EnvironmentFiles")
_LARGEST = 1 << 20  # bytes of one file
_INSPECT = 20.0  # seconds


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
    """Whether a command line is SGLang's server, run by Python: by the module or the script that
    Python itself would run. What follows a script is the script's own."""
    if not argv or not owners.PYTHON.fullmatch(os.path.basename(argv[0])):
        return False
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        if word.startswith("-m"):
            module = word[2:] or "".join(argv[at + 1 : at + 2])
            return module in _MODULES or (
                module.split(".")[0] == "sglang" and "serve" in argv[at + 1 : at + 3]
            )
        at += 2 if word in owners.WITH_VALUE else 1
    name = os.path.basename(argv[at]) if at < len(argv) else ""
    if name == "sglang":
        return "".join(argv[at + 1 : at + 2]) == "serve"
    return name == "launch_server.py" or bool(_OURS.fullmatch("".join(argv[at : at + 1])))


def _descends(pid: int, found: "set[int]") -> bool:
    seen = set()
    while pid > 1 and pid not in seen:
        seen.add(pid)
        pid = owners.parent(pid)
        if pid in found:
            return True
    return False


def _entry(manager: Systemd, pid: int) -> Optional[Dict[str, Any]]:
    """One engine, by its main process: whose it is follows from its control group."""
    told = process.of(pid)
    if told is None:
        return None
    kind, name, runtime = owners.owner(told["cgroup"])
    main = _main(manager, name) if kind == "unit" else ""
    if main:
        kind = "process"
    by, stop = owners.keeper(pid) if kind == "process" else ("", "")
    entry: Dict[str, Any] = {
        "kind": kind,
        "name": name,
        "by": main or by,
        "stop": stop,
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


def _main(manager: Systemd, unit: str) -> str:
    """The main process of a unit that is not the engine's alone (a supervisor, cron, sshd); "" if
    it is: then the unit may be stopped with its engine."""
    pid = manager.show(unit).main_pid
    told = process.of(pid) if pid else None
    if told is None or is_server(told["argv"]) or owners.is_wrapper(told["exe"], told["argv"]):
        return ""
    return f"{hostfacts.read(f'/proc/{pid}/comm').strip()} of {unit}"


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
        "ordinary_uid": logins.ordinary(told["user"]),
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


# -- units ----------------------------------------------------------------------------------------


def of_unit(manager: Systemd, name: str) -> Dict[str, Any]:
    """The unit with its engine: its main process, or, behind a shell, a descendant of it."""
    state = manager.show(name)
    if state.alias_of:
        return of_unit(manager, state.alias_of)
    engines = servers()
    if state.load not in ("loaded", "masked") and not state.up:
        raise _unknown(name, engines)
    inside = hostfacts.cgroup_pids(state.cgroup)
    engines = [pid for pid in engines if pid in inside]
    entry = _entry(manager, engines[0]) if engines else None
    if entry is None:
        entry = {"by": "", "stop": "", "process": None, "container": None}
        main = process.of(state.main_pid) if state.main_pid else None
        entry["main"] = os.path.basename(main["argv"][0]) if main and main["argv"] else ""
    return {**entry, "kind": "unit", "name": name, "unit": _unit(manager, name)}


def _unknown(name: str, engines: Sequence[int]) -> Refused:
    """Users' own units bear names, too, and `systemctl` alone does not show them."""
    for pid in engines:
        user, unit = owners.user_unit(hostfacts.read(f"/proc/{pid}/cgroup"))
        if unit == name:
            return Refused(
                f"{name} is a unit of {user}'s own systemd (systemctl --user), and none of the "
                "system's: it cannot be taken over as it runs",
                hint=f"--pid {pid} describes what it runs; before the deployment, as {user}: "
                f"systemctl --user disable --now {name}",
            )
    return Refused(f"there is no unit {name} on this host", hint="systemctl list-units")


def _unit(manager: Systemd, name: str) -> Dict[str, Any]:
    """What systemd knows of it; its files, and those with its variables, sealed."""
    state = manager.show(name)
    shown = _shown(name)
    paths = [state.properties.get("FragmentPath", ""), *state.dropins]
    texts = [[path, text] for path in paths if (text := _text(path)) is not None]
    variables = list(_FILES.findall(shown.get("EnvironmentFiles", "")))
    beside = [*variables, *_credentials(texts)]
    # Bytes that are no UTF-8 are told apart: systemd takes nothing of a file that holds any.
    told = {
        "texts": texts,
        "files": {p: t for p in beside if (t := _text(p, "surrogateescape")) is not None},
    }
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
        "changed": max([files.changed(path) for path in [*paths, *variables]], default=0.0),
        "stale": state.properties.get("NeedDaemonReload") == "yes",
        "user": shown.get("User") or "root",
        "restart": shown.get("Restart", ""),
        "output": shown.get("StandardOutput", ""),
        "limits": unitfacts.of(state.properties),
        "sealed": process.sealed(told),
    }


def _credentials(texts: Sequence[Sequence[str]]) -> List[str]:
    """The files of the secrets of a release: a running process tells none of them."""
    lines = [line for _, text in texts for line in text.splitlines()]
    if not any(line.startswith("X-OpsctlRelease=") for line in lines):
        return []
    return [found for line in lines for found in _SECRETS.findall(line)]


def _shown(name: str) -> Dict[str, str]:
    wanted = ",".join(_UNIT_SETTINGS)
    _, out, _ = systemd.call(["systemctl", "show", f"--property={wanted}", "--", name], 20)
    found: Dict[str, str] = {}
    for line in out.splitlines():
        key, _, value = line.partition("=")
        found[key] = f"{found[key]}\n{value}" if key in found else value
    return found


def _text(path: str, errors: str = "replace") -> Optional[str]:
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", errors)
    except OSError:
        return None


# -- containers -----------------------------------------------------------------------------------


def _container(runtime: str, name: str) -> Dict[str, Any]:
    """What its own tool tells; `sealed` is None if that is not here or does not answer."""
    found: Dict[str, Any] = {"id": name, "name": "", "runtime": runtime, "why": "", "sealed": None}
    known = [owners.TOOLS[runtime]] if runtime in owners.TOOLS else []
    tools = known if runtime else ["docker", "podman"]
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
