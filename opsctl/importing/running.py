"""What a host tells of an engine that runs on it → its description. What runs is the truth; where
its unit's text says another thing (it was edited after the start), that is told. Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl.importing.describe import Asked
from opsctl.importing.model import Container, Imported, Mount, Note, Report, Risk
from opsctl.importing.process import from_process
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import by_form
from opsctl.importing.text import from_text
from opsctl.importing.unit import envfile, own
from opsctl.importing.unit import read as unit_read
from opsctl.importing.unit.risktexts import TEXTS

_MISSING = object()
_SYSTEM = ("/", "/usr", "/usr/local")


def from_host(found: Mapping[str, Any], asked: Asked) -> Imported:
    """`found`: one entry of the host's answer to `running`, all that was sealed opened: "process",
    "unit" with "texts" and "files", "container" with "inspected"."""
    process, unit, container = found.get("process"), found.get("unit"), found.get("container")
    env: dict[str, str] = {}
    keys: list[str] = []
    if unit is not None:
        read = unit_read.read([(str(path), str(text)) for path, text in unit["texts"]])
        report = Report()
        if read.release and not asked.own:
            report.problems.append(own.told(read))
        elif process is not None:
            env, keys = own.secrets(read, {**unit["files"], **asked.files}, report)
        if report.problems:
            name = _asked(asked, unit).name or "service"
            return Imported(name, None, {}, problems=tuple(report.problems))
    if process is None:
        assert unit is not None  # the host names a unit, or a process
        imported = _of_text(unit, asked)
        why = _no_engine(found, unit)
        if imported.service is None and not imported.notes and len(imported.problems) == 1:
            problem = replace(imported.problems[0], hint=f"{why.what}: {why.why}")
            return replace(imported, problems=(problem,))
        return _replacing(_with(imported, [why]), unit, "")
    engine = process.get("engine") or {}
    imported = from_process(
        [*process["argv"], *keys],
        {**process["environ"], **env},
        _whole(unit) if unit else "",
        str(engine.get("version") or ""),
        asked=_asked(asked, unit),
        cwd=process.get("cwd"),
        user=process.get("user"),
        container=_container(container, asked) if container else None,
        said={*_said(unit), *env},
        folders=process.get("folders"),
    )
    if keys or env:
        imported = replace(imported, notes=tuple(map(_of_release, imported.notes)))
    notes = [
        *_who(found, process, imported),
        *(_stale(process, unit, imported, asked) if unit else ()),
    ]
    imported = _rooted(_with(imported, notes), engine) if not container else _with(imported, notes)
    if (uid := found.get("ordinary_uid")) is not None and not container:
        user = str(process["user"])
        risk = Risk("ipc-user", f"User={user}, UID {uid}", *TEXTS["ipc-user"])
        imported = replace(imported, risks=(*imported.risks, risk))
    return _replacing(imported, unit, str(found.get("by") or ""))


def _rooted(imported: Imported, engine: Mapping[str, Any]) -> Imported:
    """With the environment that its Python was found in, where the command line names none."""
    root, version = engine.get("root"), engine.get("version")
    if imported.service is None or not root or "root" in imported.service["engine"]:
        return imported
    usual = f"/opt/sglang/{imported.service['engine']['version']}"
    if root == usual:
        return imported
    if root in _SYSTEM:
        why = f"in the system's own Python: the service gets an environment of its own, {usual}"
        return _with(imported, [_told(f"SGLang {version}", why)])
    service = {**imported.service, "engine": {**imported.service["engine"], "root": root}}
    note = Note("carried", f"engine.root {root}", "where the process has its Python from")
    return _with(replace(imported, service=service), [note])


def _asked(asked: Asked, unit: Mapping[str, Any] | None) -> Asked:
    """A unit's name is the service's, if the operator gives none."""
    if asked.name or unit is None:
        return asked
    from opsctl.importing.naming import slug

    return replace(asked, name=slug(str(unit["name"])))


def _with(imported: Imported, notes: Sequence[Note]) -> Imported:
    return replace(imported, notes=(*imported.notes, *notes))


def _replacing(imported: Imported, unit: Mapping[str, Any] | None, by: str) -> Imported:
    """A unit of another name is named in the description, since two engines cannot share a host's
    port and GPUs; not one that keeps other things, too: the deployment would end them. `by`: its
    main process then."""
    if unit is None or imported.service is None:
        return imported
    name, ours = str(unit["name"]), f"sglang-{imported.name}.service"
    if by:
        why = f"is not the engine's alone: stop the engine there before {ours} is deployed"
        return _with(imported, [_told(by, why)])
    if name == ours:
        return imported
    if "@" in name:
        why = f"is an instance of a template: stop and disable it before {ours} is deployed"
        return _with(imported, [_told(name, why)])
    note = Note(
        "changed",
        f"{name} → {ours}",
        "a process cannot go on in a unit of another name: the deployment stops and disables "
        f"{name}, and keeps it as release 0",
    )
    service = {**imported.service, "takes_over": name}
    return _with(replace(imported, service=service), [note])


def _told(what: str, why: str) -> Note:
    return Note("told", what, why)


# -- the unit's text ------------------------------------------------------------------------------


def _whole(unit: Mapping[str, Any]) -> str:
    """As `systemctl cat` prints it."""
    return "\n".join(f"# {path}\n{text}" for path, text in unit["texts"])


def _of_text(unit: Mapping[str, Any], asked: Asked) -> Imported:
    """An instance of a template has its own name, which its specifiers stand for."""
    texts = [(str(path), str(text)) for path, text in unit["texts"]]
    if texts:
        folder = posixpath.dirname(texts[0][0]) or "/etc/systemd/system"
        texts[0] = (f"{folder}/{unit['name']}", texts[0][1])
    files = {**unit["files"], **asked.files}
    return from_text(texts, "unit", replace(_asked(asked, unit), files=files))


def _said(unit: Mapping[str, Any] | None) -> set[str]:
    """Variables that a unit's files set: the unit's own lines are read by `from_process`."""
    if unit is None:
        return set()
    return {name for text in unit["files"].values() for name in envfile.read(str(text)).values}


def _no_engine(found: Mapping[str, Any], unit: Mapping[str, Any]) -> Note:
    if unit["state"] != "active":
        return _told(str(unit["name"]), f"is {unit['state']}: read from its files alone")
    main = found.get("main") or "no process"
    return _told(
        str(unit["name"]),
        f"its main process is {main}, and no engine is inside: read from its files alone; an "
        "engine in a container is found without --unit",
    )


def _stale(
    process: Mapping[str, Any], unit: Mapping[str, Any], imported: Imported, asked: Asked
) -> Iterator[Note]:
    """What runs, against what would be started from the files as they are now."""
    if imported.service is None:
        return
    version = str(imported.service["engine"]["version"])
    text = _of_text(unit, replace(asked, version=asked.version or version))
    known = {(note.kind, note.what) for note in imported.notes}
    yield from (n for n in text.notes if n.kind == "lost" and (n.kind, n.what) not in known)
    edited = float(unit["changed"]) > float(process["started"])
    why = "its files were changed after this start" if edited else "its files"
    if unit["stale"]:
        why += ", and systemd has not read them again"
    if text.service is None:
        if edited or unit["stale"]:
            yield _told(str(unit["name"]), f"{why}; what they would start now cannot be read")
        return
    before, after = _flat(imported), _flat(text)
    differs = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    for key in differs:
        if key.startswith("env.") and key not in after and not _from_unit(key, process):
            continue  # of the login or manager, which no text tells
        now, then = (_shown(key, one.get(key, _MISSING)) for one in (before, after))
        yield _told(
            f"{key}: {now} runs, {then} stands in the unit", f"{why}; what runs is imported"
        )
    if edited and not differs:
        yield _told(str(unit["name"]), f"{why}; they would start the same engine")


def _from_unit(key: str, process: Mapping[str, Any]) -> bool:
    return key.removeprefix("env.") in process["environ"]


def _flat(imported: Imported) -> dict[str, Any]:
    """Every setting by its place; secrets with their values, which `_shown` hides."""
    found: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and prefix.count(".") < 2:
            for key, part in value.items():
                add(f"{prefix}.{key}" if prefix else str(key), part)
        else:
            secret = value.strip("{} ") if isinstance(value, str) else ""
            found[prefix] = imported.secrets.get(secret, value)

    add("", imported.service or {})
    return found


def _shown(key: str, value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    name = key.rsplit(".", 1)[-1]
    hidden = key.startswith("secrets.") or by_name(name) or by_form(str(value))
    return "a secret" if hidden else str(value)


# -- whose it is ----------------------------------------------------------------------------------


def _of_release(note: Note) -> Note:
    """A secret of one of opsctl's own releases was readable to nobody."""
    if note.kind != "moved" or " in secrets" not in note.why:
        return note
    why = f"{note.why.partition(': ')[0]}: from the release's own file; put its value into a vault"
    return replace(note, why=why)


def _who(
    found: Mapping[str, Any], process: Mapping[str, Any], imported: Imported
) -> Iterator[Note]:
    pid = process["pid"]
    if found["kind"] == "process" and imported.service is not None:
        yield _told(
            f"process {pid} ({found.get('by') or 'nobody looks after it'})",
            "no unit of its own looks after it, so a takeover restarts it: stop it by hand before "
            "the deployment, which finds its port and its GPUs taken otherwise: "
            f"{found.get('stop') or f'kill {pid}'}",
        )
    elif found["kind"] == "container":
        told = found["container"]
        name = told.get("name") or told["id"][:12]
        tool = told.get("runtime") or "its runtime"
        yield _told(
            f"container {name} ({tool}), process {pid}",
            "a takeover restarts it outside the container: stop it before the deployment, and "
            f"keep it from coming back: {tool} update --restart=no {name}; {tool} stop {name}",
        )
        if told.get("why"):
            yield _told(
                f"container {name}",
                f"was not inspected ({told['why']}): folders of the host and published ports are "
                "not known; give --mount HOST:CONTAINER",
            )
    engine = process.get("engine") or {}
    if engine.get("installed") and engine["installed"] > process["started"]:
        yield _told(
            f"SGLang {engine['version']} in {engine['root']}",
            "was installed after this start: what runs may be another version",
        )
    memlock = (process.get("limits") or {}).get("memlock")
    if memlock not in (None, -1) and found["kind"] != "container":
        yield _told(
            f"LimitMEMLOCK {memlock >> 10} KiB",
            "pinned host memory may exceed it; opsctl's unit has infinity",
        )


def _container(told: Mapping[str, Any], asked: Asked) -> Container:
    """From `docker inspect`; of one that could not be inspected only that it is one."""
    told = told.get("inspected") or {}
    config, host = told.get("Config") or {}, told.get("HostConfig") or {}
    made = Container(image=str(config.get("Image") or told.get("ImageName") or ""))
    made.mounts = [
        Mount(str(m["Source"]) if m.get("Source") else None, str(m["Destination"]))
        for m in told.get("Mounts") or ()
        if m.get("Destination")
    ]
    made.mounts += [Mount(source, target) for source, target in asked.mounts]
    made.host_network = not told or host.get("NetworkMode") == "host"
    bindings = (told.get("NetworkSettings") or {}).get("Ports") or host.get("PortBindings") or {}
    made.ports = list(_ports(bindings))
    made.gpus = _gpus(host.get("DeviceRequests") or ())
    return made


def _ports(bindings: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    for inside, outsides in bindings.items():
        number = inside.partition("/")[0]
        for one in outsides or ():
            if number.isdigit() and str(one.get("HostPort") or "").isdigit():
                address = str(one.get("HostIp") or "")
                yield (
                    "" if address in ("0.0.0.0", "::") else address,
                    int(one["HostPort"]),
                    int(number),
                )


def _gpus(requests: Sequence[Mapping[str, Any]]) -> tuple[int, ...] | None:
    ids = [str(one) for request in requests for one in request.get("DeviceIDs") or ()]
    return tuple(map(int, ids)) if ids and all(one.isdigit() for one in ids) else None
