"""What `doctor` reads of each service: unit, limits of its processes, port, model, environment,
and what opsctl itself left of it. Nothing is judged, nothing is changed."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from opsctl.onhost import (
    collect,
    hostfacts,
    listeners,
    locks,
    logins,
    modelcheck,
    modelfiles,
    running,
    storage,
)
from opsctl.onhost.doctor import access
from opsctl.onhost.preflight import Outside
from opsctl.onhost.store import ZERO, Places, Refused, Store
from opsctl.onhost.systemd import Systemd, UnitState

_TITLE = re.compile(r"sglang::|sglang\.launch_server")
TEXTS = (".json", ".model", ".txt", ".jinja", ".tiktoken", ".py")  # beside the weights
SHOWN = ("Id", "ActiveState", "NeedDaemonReload", "DropInPaths", "UnitFileState", "NRestarts",
         "ExecMainStatus")  # fmt: skip
DISTRIBUTIONS = ("sglang", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python")


def services(
    places: Places, systemd: Systemd, described: Sequence[Mapping[str, Any]]
) -> List[Dict[str, Any]]:
    """One entry a service: those that are described, then those that only stand here."""
    wanted = {str(one["service"]): one for one in described}
    storage.silent([path for one in described for path in paths(one)])  # all at once
    names = list(dict.fromkeys([*wanted, *collect.known(places)]))
    found = []
    for unit, guard in collect.states(systemd, names, everything=True):
        name = unit.name[len("sglang-") : -len(".service")]
        found.append(_service(places, unit, guard, name, wanted.get(name)))
        if found[-1]["release"]["edited"]:  # opsctl has asked systemd of its own units before
            found[-1]["unit"]["verify"] = systemd.verify(places.units / unit.name)
    return found


def _service(
    places: Places,
    unit: UnitState,
    guard: UnitState,
    name: str,
    described: Optional[Mapping[str, Any]],
) -> Dict[str, Any]:
    try:
        store: Optional[Store] = Store(name, places)
    except Refused:  # a unit of other hands whose name could be none of ours
        store = None
    release = collect.standing(store, unit)
    standing = store.manifest(release["running"]) if store and release["running"] else None
    manifest: Mapping[str, Any] = described or standing or {}
    return {
        "service": name,
        "described": described is not None,
        "manifest": manifest,
        "unit": {
            "name": unit.name, "load": unit.load, "active": unit.active, "sub": unit.sub,
            "result": unit.result, "up": unit.up, "pid": unit.main_pid, "age": _age(unit),
            "verify": [], "show": {key: unit.properties.get(key, "") for key in SHOWN},
        },
        "pids": hostfacts.cgroup_pids(unit.cgroup),
        "limits": hostfacts.read(f"/proc/{unit.main_pid}/limits") if unit.main_pid else "",
        "release": release,
        "lock": locks.told(store, guard) if store else None,
        "pending": bool(store and store.pending_is_there()),
        "working": bool(store and locks.working(store, guard)),
        "secrets": secrets(store, manifest) if store else [],
        "port_holder": Outside().port_holder(manifest.get("address") or {}, unit.name),
        "user": user(str(manifest.get("user") or "")),
        "group": _group(manifest),
        "ordinary": logins.ordinary(str(manifest.get("user") or "")),
        **folders(manifest),
    }  # fmt: skip


def _age(unit: UnitState) -> Optional[float]:
    """Seconds since the unit became active; None where it never did."""
    since = int(unit.properties.get("ActiveEnterTimestampMonotonic") or 0)
    return time.monotonic() - since / 1e6 if since else None


def user(name: str) -> Optional[Dict[str, Any]]:
    """None if there is no such user, or none is named."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = [group.gr_gid for group in grp.getgrall() if name in group.gr_mem]
    return {"uid": entry.pw_uid, "gids": sorted({entry.pw_gid, *groups})}


def _group(manifest: Mapping[str, Any]) -> bool:
    """Whether the group is there that our units name beside the user; of other hands' nothing is
    known."""
    ours = "engine" in manifest and manifest.get("user")
    return not ours or Outside().group_exists(str(manifest["user"]))


def secrets(store: Store, manifest: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """[{"path", "mode"}] of the secrets of the release that stands in place."""
    digest = str(manifest.get("digest") or store.standing() or "")
    if not re.fullmatch(r"[0-9a-f]{64}", digest) or digest == ZERO:
        return []
    found = []
    folder = store.release(digest) / "secrets"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        with suppress(OSError):
            found.append({"path": str(path), "mode": stat.S_IMODE(path.stat().st_mode)})
    return found


def paths(manifest: Mapping[str, Any]) -> List[str]:
    """The folders that a release names: model, draft, engine."""
    parts = [(manifest.get(part) or {}).get(key) for part, key in
             (("model", "path"), ("model", "draft_path"), ("engine", "root"))]  # fmt: skip
    return [str(path) for path in parts if path]


def folders(manifest: Mapping[str, Any]) -> Dict[str, Any]:
    """{"silent", "model", "draft", "engine"}. `silent`: by path, the mounts that do not answer;
    nothing else is asked of those."""
    silent = storage.silent(paths(manifest))
    wanted: Mapping[str, Any] = manifest.get("model") or {}

    def answering(path: Any) -> str:
        return "" if not path or path in silent else str(path)

    return {
        "silent": silent,
        "model": model(answering(wanted.get("path")), wanted.get("size")),
        "draft": model(answering(wanted.get("draft_path"))),
        "engine": environment(answering((manifest.get("engine") or {}).get("root"))),
    }


def model(path: str, least: Optional[int] = None) -> Optional[Dict[str, Any]]:
    """{"path", "exists", "folder", "bytes", "config", "odd", "missing", "foreign", "cut", "short",
    "unindexed", "access"}; None where none is named. `folder`: else it is one file, of which only
    `access` tells. `config` and `odd`: why the engine cannot tell what to load, by its
    configuration and by its weights. `access`: the folders down to it and every file that the
    engine reads, with mode and owner: may the engine's user read it?"""
    if not path:
        return None
    place, there = Path(path), os.path.isdir(path)
    heads = modelfiles.heads(place)
    loaded = {file.name for file, _ in modelfiles.weights(place)}
    read = [name for name, *_ in modelfiles.listing(place)
            if name in loaded or name.endswith(TEXTS)]  # fmt: skip
    return {
        "path": path,
        "exists": os.path.exists(path),
        "folder": there,
        **modelcheck.seen(path, least, not heads.told),
        "foreign": heads.foreign,
        "cut": heads.cut,
        "unindexed": modelcheck.unindexed(path),
        "access": access.modes([path, *(os.path.join(path, name) for name in read)]),
    }


def environment(root: str) -> Optional[Dict[str, Any]]:
    """An engine's environment without running it: interpreter, packages by their dist-info, what
    sglang itself demands, and how torch was built. None where no root is named."""
    if not root:
        return None
    python = os.path.join(root, "bin", "python")  # what ExecStart runs, and nothing else
    sites = sorted(Path(root).glob("lib*/python3*/site-packages"))
    site = sites[0] if sites else Path(root, "none")
    found: Dict[str, str] = {}
    requires: List[str] = []
    for info in sorted(site.glob("*.dist-info")):
        name, _, version = info.name[: -len(".dist-info")].partition("-")
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in DISTRIBUTIONS:
            found[name] = version
        if name == "sglang":
            text = hostfacts.read(str(info / "METADATA")).partition("\n\n")[0]
            requires = re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)
    return {
        "root": root,
        "exists": os.path.isdir(root),
        "python": os.path.isfile(python) and os.access(python, os.X_OK),
        "python_link": os.path.lexists(python),
        "access": access.modes(
            [str(site / "sglang" / "launch_server.py"), os.path.join(root, "pyvenv.cfg")], [python]
        ),
        "python_version": site.parent.name[len("python") :] if sites else "",
        "packages": found,
        "importable": (site / "sglang" / "launch_server.py").is_file() or _editable(site),
        "elsewhere": _elsewhere(root, site),
        "requires": [line for line in requires if _named(line) in DISTRIBUTIONS],
        "torch": hostfacts.read(str(site / "torch" / "version.py")),
    }


def _editable(site: Path) -> bool:
    """Installed from a folder of sources: then a .pth or a finder leads to it."""
    return any(site.glob("__editable__*sglang*"))


def _elsewhere(root: str, site: Path) -> bool:
    """Whether packages may lie in folders that are not looked at: then their absence tells none."""
    told = re.sub(r"\s", "", hostfacts.read(os.path.join(root, "pyvenv.cfg")).lower())
    alone = "include-system-site-packages=false" in told
    return not alone or any(site.glob("*.egg-link")) or (site / "easy-install.pth").exists()


def _named(line: str) -> str:
    match = re.match(r"[\w.-]+", line)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def strays(found: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """Processes of an engine that belong to no service: {"pid", "comm", "unit", "at"}, the last
    [address, port] of each place where it listens. Command lines are looked into, not told: people
    put keys there. A router, a benchmark or a `tail` of its log is no engine."""
    ours = {pid for service in found for pid in service["pids"]}
    strays, places = [], listeners.of_host()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in ours or int(entry) == os.getpid():
            continue
        comm = hostfacts.read(f"/proc/{entry}/comm").strip()
        argv = hostfacts.read(f"/proc/{entry}/cmdline").split("\0")[:-1]
        titles = (comm, *argv[:1])  # its processes give themselves names
        if running.is_server(argv) or any(_TITLE.match(title) for title in titles):
            group = hostfacts.read(f"/proc/{entry}/cgroup").strip().rpartition("/")[2]
            own = listeners.sockets(Path("/proc", entry)) & set(places)
            at = sorted({places[inode] for inode in own})
            strays.append({"pid": int(entry), "comm": comm, "unit": group, "at": at})
    return sorted(strays, key=lambda stray: int(stray["pid"]))
