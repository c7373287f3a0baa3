"""A launch → a description that renders to an equivalent command line, or the reasons why not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opsctl import engine
from opsctl.engine.catalogue import ELSEWHERE, SECRET
from opsctl.errors import SpecError
from opsctl.importing.configfile import merged
from opsctl.importing.containerfates import folders
from opsctl.importing.entry import Entry, Other, entry
from opsctl.importing.environment import Variables, variables
from opsctl.importing.equivalent import differences
from opsctl.importing.flags import flags
from opsctl.importing.interpreter import interpreter
from opsctl.importing.keeping import apart, hidden, secrets, weak
from opsctl.importing.marks import theirs, whole
from opsctl.importing.model import Imported, Launch, Report
from opsctl.importing.naming import asked_for, name_of, version_of
from opsctl.importing.places import Places, places
from opsctl.importing.secretnames import by_name
from opsctl.importing.secrets import Vault, suspects
from opsctl.importing.values import as_json
from opsctl.importing.versions import fitting, nearest

# Users that a login has: logind takes the shared memory of those when they log out.
_LOGINS = {
    *("root", "ubuntu", "debian", "admin", "ec2-user", "centos", "rocky", "fedora", "opc"),
    *("azureuser", "vagrant", "user"),
}


@dataclass(frozen=True)
class Asked:
    """What the operator adds to the text. `files`: contents of files that it speaks of, by path."""

    name: str = ""
    version: str = ""
    models: str = "/srv/models"
    model: str = ""
    cwd: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()
    service: str = ""  # of a compose file
    own: bool = False  # also one of opsctl's own units


def describe(launch: Launch, asked: Asked, report: Report) -> Imported:
    """Every import ends here. Nothing is described of which the rendering is not equivalent."""
    way = entry(launch.argv)
    if isinstance(way, Other):
        _no_server(way, launch, report)
        return _end(asked.name or "service", None, Vault("", hidden=report.hidden), report)
    version = version_of(launch, way, asked.version, report)
    way = replace(way, args=merged(way.args, version, asked.files, report))
    report.hidden |= suspects("\n".join(way.args))
    report.hidden |= {text for name, text in launch.env.items() if by_name(name) and whole(text)}
    name = asked.name or name_of(launch, way, report.hidden)
    vault = Vault(name, hidden=set(report.hidden))
    if not version:
        candidates = asked_for(way, report)
        variables(launch, vault, report)
        if not candidates:
            flags(engine.catalogue(nearest(way.args)), way.args, report, vault)
        return _end(name, None, vault, report, candidates)
    try:
        known = engine.catalogue(version)
    except SpecError as error:
        report.problems += error.problems
        return _end(name, None, vault, report, tuple(fitting(way.args)))
    found = flags(known, way.args, report, vault)
    _refuse_places(found, report)
    placed = places(found, known, launch, asked.models, asked.model, report)
    around = variables(launch, vault, report)
    if launch.container is not None:
        model, own = str(found.get("model-path", "")), [target for _, target in asked.mounts]
        folders(launch.container, model, around.plain, own, report)
    interpreter(way.switches, report)
    service = _service(launch, way, version, placed, around, vault, report)
    if not report.problems:
        for message in differences(name, service, vault, known, way.args, placed, around, report):
            report.refuse(message)
    return _end(name, None if report.problems else service, vault, report)


def _end(
    name: str,
    service: dict[str, Any] | None,
    vault: Vault,
    report: Report,
    versions: tuple[str, ...] = (),
) -> Imported:
    order = ("moved", "changed", "lost", "dropped", "carried", "told")
    notes = sorted((vault.hide_note(n) for n in report.notes), key=lambda n: order.index(n.kind))
    return Imported(
        name,
        service,
        dict(vault.values),
        tuple(notes),
        tuple(vault.hide_problem(p) for p in report.problems),
        tuple(map(vault.hide_risk, report.risks)),
        versions,
    )


def _no_server(way: Other, launch: Launch, report: Report) -> None:
    if report.problems and not launch.argv:
        return
    if launch.argv:  # what else is said of it is of no use to who named the wrong thing
        report.notes.clear()
        report.risks.clear()
    if way.what:
        report.refuse(f"this starts {way.what}")
    elif launch.argv:
        report.refuse(
            "starts no SGLang server",
            value=re.sub("\0[a-z]*:?", "", launch.argv[0])[:200],
            allowed="python -m sglang.launch_server …, sglang serve …",
        )
    else:
        report.refuse(
            "holds no command", allowed="python -m sglang.launch_server …, sglang serve …"
        )


def _refuse_places(found: dict[str, Any], report: Report) -> None:
    """Flags that no description may hold (the engine's catalogue says why)."""
    if "config" in found:
        report.refuse(
            "takes flags from a file",
            key="flags.config",
            value=str(found["config"]),
            hint=f"give the file: --file {theirs(found['config'])}=COPY",
        )
    for name, hint in SECRET.items():
        value = found.get(name)
        if value is not None and (name != "watermark-config" or "{" in str(value)):
            report.refuse("would stand readable in the unit", key=f"flags.{name}", hint=hint)


def _service(
    launch: Launch,
    way: Entry,
    version: str,
    placed: Places,
    around: Variables,
    vault: Vault,
    report: Report,
) -> dict[str, Any]:
    service: dict[str, Any] = {"model": {"path": placed.model}}
    if placed.served_name is not None:
        service["model"]["served_name"] = placed.served_name
    service["engine"] = {"version": version}
    if root := _root(launch, way, version, report):
        service["engine"]["root"] = root
    service |= {"host": placed.host, "port": placed.port}
    if around.gpus is not None:
        service["gpus"] = around.gpus
    if user := _user(launch, report):
        service["user"] = user
    kept = secrets(placed, around, vault, report)
    flags_of = engine.catalogue(version).flags
    rest = {n: v for n, v in placed.values.items() if n not in ELSEWHERE}
    rest |= {n: as_json(v) or v for n, v in rest.items() if flags_of[n].kind == "json_text"}
    if rest:
        service["flags"] = {n: hidden(n, v, version, vault, report) for n, v in rest.items()}
    if around.plain:
        service["env"] = dict(around.plain)
    if launch.drain is not None:
        service["timing"] = {"drain": launch.drain}
    service = apart(service, vault, report)
    if kept:
        service["secrets"] = kept
        weak(vault.service, service, vault, report)
    return service


def _root(launch: Launch, way: Entry, version: str, report: Report) -> str:
    usual = f"/opt/sglang/{version}"
    if launch.container is not None:
        report.note(
            "changed",
            f"engine: the image → {usual}",
            "the engine runs from an "
            "environment of the host: engine.install says how it gets there",
        )
        return ""
    root = way.root or launch.root or ""
    if not root or ":" in root or ".." in root or "\0" in root:
        report.note(
            "changed",
            f"{theirs(re.sub(chr(0), '', launch.argv[0]))} → {usual}/bin/python",
            "the text does not say which environment that is",
        )
        return ""
    if way.way == "sglang serve":
        report.note(
            "changed",
            "sglang serve → python -m sglang.launch_server",
            "the same server, with the same parser",
        )
    return "" if root == usual else root


def _user(launch: Launch, report: Report) -> str:
    user = launch.user or ""
    if not user or user == "sglang":
        return ""
    if user in _LOGINS or not re.fullmatch(r"[a-z_][a-z0-9_-]{0,30}", user):
        report.note(
            "changed",
            f"user {theirs(user)} → sglang",
            "a system user of its own: no root, and "
            "none that logs in; it must be able to read the model",
        )
        return ""
    return user
