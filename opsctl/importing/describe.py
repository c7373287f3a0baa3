"""A launch → a description that renders to an equivalent command line, or the reasons why not."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsctl import engine
from opsctl.engine.catalogue import ELSEWHERE, SECRET
from opsctl.errors import SpecError
from opsctl.importing.entry import Entry, Other, entry
from opsctl.importing.environment import Variables, variables
from opsctl.importing.equivalent import differences
from opsctl.importing.flags import SECRETS, flags
from opsctl.importing.model import Imported, Launch, Report
from opsctl.importing.places import Places, is_hub_name, places
from opsctl.importing.secrets import Vault, within
from opsctl.importing.values import as_json
from opsctl.importing.versions import fitting, named, nearest, said
from opsctl.release.secrets import check
from opsctl.spec.kinds import SERVICE_NAME

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


def describe(launch: Launch, asked: Asked, report: Report) -> Imported:
    """Every import ends here. Nothing is described of which the rendering is not equivalent."""
    way = entry(launch.argv)
    if isinstance(way, Other):
        _no_server(way, launch, report)
        return _end(asked.name or "service", None, Vault("", hidden=report.hidden), report)
    name = asked.name or _name(launch, way)
    vault = Vault(name, hidden=set(report.hidden))
    version, candidates = _version(launch, way, asked, report)
    if version is None:
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
    service = _service(launch, way, version, placed, around, vault, report)
    if not report.problems:
        for message in differences(name, service, vault, known, way.args, placed, around):
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
        tuple(report.risks),
        versions,
    )


def _no_server(way: Other, launch: Launch, report: Report) -> None:
    if report.problems and not launch.argv:
        return
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


def _name(launch: Launch, way: Entry) -> str:
    """A name for the service: of the unit or container, else of the model."""
    candidates = [launch.name or ""]
    for flag in ("--served-model-name", "--model-path", "--model"):
        for at, word in enumerate(way.args):
            if word == flag and at + 1 < len(way.args):
                candidates.append(way.args[at + 1])
            elif word.startswith(f"{flag}="):
                candidates.append(word.partition("=")[2])
    for candidate in candidates:
        if "\0" not in candidate and (found := slug(candidate.rstrip("/").rsplit("/", 1)[-1])):
            return found
    return "service"


def slug(text: str) -> str:
    """A service's name from any text; "" if nothing is left of it."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"^sglang[-_.@]?(?=.)|\.(service|container)$", "", plain)
    plain = re.sub(r"\.\.+", ".", re.sub(r"[^a-z0-9._-]+", "-", plain))[:48].strip("._-")
    return plain if SERVICE_NAME.fullmatch(plain) else ""


def _version(
    launch: Launch, way: Entry, asked: Asked, report: Report
) -> tuple[str | None, tuple[str, ...]]:
    if asked.version:
        return asked.version, ()
    texts = [launch.container.image] if launch.container else []
    texts += [way.root, launch.root or "", launch.argv[0], launch.env.get("PATH", "")]
    if (found := named(text for text in texts if "\0" not in text)) is not None:
        report.note(
            "told", f"SGLang {found[0]}", f"as {found[1]} says; --engine-version says another"
        )
        return found[0], ()
    candidates = fitting(way.args)
    if candidates:
        hint = f"give it: --engine-version {candidates[-1]}, or another of {said(candidates)}, "
        hint += "which take every flag here"
    else:
        hint = (
            "no version that opsctl knows takes every argument here; what follows is what the "
            f"nearest, {nearest(way.args)}, refuses"
        )
    report.refuse("does not say which version of SGLang it is", key="engine.version", hint=hint)
    return None, tuple(candidates)


def _refuse_places(found: dict[str, Any], report: Report) -> None:
    """Flags that no description may hold (the engine's catalogue says why)."""
    if "config" in found:
        report.refuse(
            "takes flags from a file",
            key="flags.config",
            value=str(found["config"]),
            hint=f"give the file: --file {found['config']}=COPY",
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
    flags_of = engine.catalogue(version).flags
    rest = {n: v for n, v in placed.values.items() if n not in ELSEWHERE}
    rest |= {n: as_json(v) or v for n, v in rest.items() if flags_of[n].kind == "json_text"}
    if rest:
        service["flags"] = {n: _hidden(n, v, vault, report) for n, v in rest.items()}
    if around.plain:
        service["env"] = dict(around.plain)
    if secrets := _secrets(placed, around, vault, report):
        service["secrets"] = secrets
        _weak(vault.service, service, vault, report)
    return service


def _hidden(name: str, value: Any, vault: Vault, report: Report) -> Any:
    """A flag's value with the secrets inside it moved out of the description. (In the unit they
    stand again: the engine takes them on its command line only, which the report says.)"""
    if is_hub_name(name, value):
        report.note(
            "told",
            f"{name}: {value}",
            "a hub's name: the engine fetches it at its start; a folder of the host is surer",
        )
    found = within(value, name if isinstance(value, str) else "")
    for key, secret in found:
        kept = vault.keep(f"{name} {key}", secret)
        value = _replaced(value, secret, kept)
        report.note(
            "moved",
            f"{name}: {key or 'its value'}",
            f"{kept}; the engine takes it on its "
            "command line only, so it stays readable on the host",
        )
    return value


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, list):
        return [_replaced(part, old, new) for part in value]
    if isinstance(value, dict):
        return {key: _replaced(part, old, new) for key, part in value.items()}
    return value


def _secrets(placed: Places, around: Variables, vault: Vault, report: Report) -> dict[str, Any]:
    secrets: dict[str, Any] = {}
    for name in SECRETS:
        value = placed.values.get(name)
        if value == "":
            report.note("dropped", name, "it is empty, as if it were not set")
            placed.values.pop(name)
        elif value is not None:
            secrets[name] = vault.keep(name, value)
            report.note(
                "moved",
                f"--{name}",
                f"{secrets[name]} in secrets: every user of "
                "the host could read it in the command line; put its value into a vault",
            )
    if around.secret:
        secrets["env"] = dict(around.secret)
    return secrets


def _weak(name: str, service: Mapping[str, Any], vault: Vault, report: Report) -> None:
    """Secrets that no release takes as they are: a new one is needed, which the report says."""
    told = service.get("secrets") or {}
    named = {key: value for key, value in told.items() if key != "env"}
    named |= {f"env.{key}": value for key, value in (told.get("env") or {}).items()}
    public = json.dumps(vault.reveal({k: v for k, v in service.items() if k != "secrets"}))
    for key, value in named.items():
        secret = vault.reveal(value)
        wrong = [problem.message for problem in check({key: secret}, name)]
        if json.dumps(secret)[1:-1] in public or secret in public:
            wrong.append("it also stands elsewhere in the description, where it is public")
        if wrong:
            vault.weak.add(value)
            report.note(
                "changed",
                key.removeprefix("env."),
                f"{wrong[0]}: put a new one into the vault, and give it to whoever uses it",
            )


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
            f"{re.sub(chr(0), '', launch.argv[0])} → {usual}/bin/python",
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
            f"user {user} → sglang",
            "a system user of its own: no root, and "
            "none that logs in; it must be able to read the model",
        )
        return ""
    return user
