"""A service of a compose file, as `docker run` would be told of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from opsctl.importing import docker
from opsctl.importing.marks import mark
from opsctl.importing.model import Launch, Report
from opsctl.importing.script import tell_assumed
from opsctl.importing.shell import Scope, Unreadable, commands, expand

_LARGEST = 1 << 20
_VARIABLE = re.compile(
    r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])((?:[^{}]|\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)"
)
_DOTENV = re.compile(
    r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(?:'([^']*)'(?:\s+#.*)?|\"([^\"]*)\"(?:\s+#.*)?|(.*))"
)
_OPTIONS = {
    "volumes": "--volume",
    "ports": "--publish",
    "env_file": "--env-file",
    "devices": "--device",
    "cap_add": "--cap-add",
    "security_opt": "--security-opt",
    "group_add": "--group-add",
}
_SINGLE = {
    "container_name": "--name",
    "working_dir": "--workdir",
    "user": "--user",
    "ipc": "--ipc",
    "shm_size": "--shm-size",
    "network_mode": "--network",
    "runtime": "--runtime",
    "restart": "--restart",
    "mem_limit": "--memory",
    "cpuset": "--cpuset-cpus",
    "stop_grace_period": "--stop-timeout",
    "hostname": "--hostname",
}
_NOTHING = {
    "healthcheck": "opsctl's gates ask for a real answer",
    "depends_on": "an engine needs no other container",
    "logging": "what the engine prints is in the journal",
    "build": "no image is built",
    "networks": "the engine listens on the host",
    "deploy": "read for its GPUs",
    "profiles": "a service is deployed by its name",
    "labels": "there is no container any more",
}


class Loader(yaml.SafeLoader):
    """Anchors of anchors could grow without end; a launch needs a few."""

    aliases = 0

    def compose_node(self, parent: Any, index: int) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > 100:
                raise yaml.YAMLError("more than 100 aliases")
        return super().compose_node(parent, index)


def document(text: str) -> Mapping[str, Any] | None:
    """The compose document; None if it is none."""
    if len(text) > _LARGEST or "services:" not in text:
        return None
    try:
        found = yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    services = found.get("services") if isinstance(found, dict) else None
    return found if isinstance(services, dict) and services else None


def launch(
    found: Mapping[str, Any],
    chosen: str,
    variables: Mapping[str, str],
    files: Mapping[str, str],
    mounts: Sequence[tuple[str, str]],
    report: Report,
) -> Launch | None:
    services = {str(n): s for n, s in found["services"].items() if isinstance(s, dict)}
    name = chosen or _engine(services, report)
    if name is None:
        return None
    if name not in services:
        report.refuse("is no service of the file", key=name, allowed=", ".join(services))
        return None
    beside = files.get(".env")
    known = {**dotenv(beside or ""), **variables}
    assumed: dict[str, str] = {}
    service = _interpolated(services[name], known, assumed)
    _tell_dotenv(beside, found["services"][name], report)
    settings = docker.Settings(_options(service, report), report)
    home = known.get("HOME", mark("home", "~"))
    volumes = settings.values.get("--volume", [])
    volumes[:] = [home + text[1:] if text.startswith("~/") else text for text in volumes]
    entrypoint = _words(service.get("entrypoint"), report)
    command = _words(service.get("command"), report) or []
    image = str(service.get("image") or "")
    made = docker.launch(settings, image, command, known, files, mounts, entrypoint)
    if made is not None:
        made.name = made.name or name
        tell_assumed(assumed, made, report)
    return made


def dotenv(text: str) -> dict[str, str]:
    """The file `.env` beside a compose file: as its env_file, but with quotes and variables."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _DOTENV.fullmatch(line.strip())
        if match is None:
            continue
        name, single, double, bare = match.groups()
        value = double if double is not None else re.split(r"(?:^|\s)#", bare or "")[0].rstrip()
        found[name] = single if single is not None else _interpolated(value, found, {})
    return found


def _tell_dotenv(beside: str | None, service: Any, report: Report) -> None:
    if not _VARIABLE.search(str(service).replace("$$", "")):
        return
    if beside is None:
        why = "was not given: docker compose takes variables from it: --file .env=COPY"
    else:
        names = ", ".join(dotenv(beside)) or "nothing"
        why = f"read, as docker compose reads it: it sets {names}"
    report.note("told", ".env", why)


def _engine(services: Mapping[str, Any], report: Report) -> str | None:
    named = [
        n
        for n, s in services.items()
        if "sglang" in f"{s.get('image')} {s.get('command')} {s.get('entrypoint')}"
        and "sglang_router" not in str(s.get("command"))
    ]
    candidates = named or list(services)
    if len(candidates) == 1:
        return candidates[0]
    report.refuse(
        f"has {len(candidates)} services that may be meant: {', '.join(candidates)}",
        hint=f"say which: --service {candidates[0]}",
    )
    return None


def _interpolated(value: Any, known: Mapping[str, str], assumed: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda m: _put(m, known, assumed), value)
    if isinstance(value, list):
        return [_interpolated(part, known, assumed) for part in value]
    if isinstance(value, dict):
        return {key: _interpolated(part, known, assumed) for key, part in value.items()}
    return value


def _put(match: re.Match[str], known: Mapping[str, str], assumed: dict[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    name, op, word = match[1] or match[4], match[2] or "", match[3] or ""
    value = known.get(name)
    missing = value is None or (op.startswith(":") and value == "")
    if op.endswith("-"):
        if missing:
            assumed.setdefault(name, word)
        return word if missing else str(value)
    if op.endswith("+"):
        return "" if missing else word
    return mark("variable", name) if value is None else value


def _options(service: Mapping[str, Any], report: Report) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, option in _OPTIONS.items():
        value = service.get(key)
        items = value if isinstance(value, list) else [value] if value is not None else []
        found += [(option, _item(key, item)) for item in items]
    for key, option in _SINGLE.items():
        if (value := service.get(key)) is not None:
            found.append((option, str(value)))
    for name, value in _pairs(service.get("environment")):
        found.append(("--env", name if value is None else f"{name}={value}"))
    if isinstance(ulimits := service.get("ulimits"), dict):
        found += [("--ulimit", str(name)) for name in ulimits]
    if service.get("privileged"):
        found.append(("--privileged", ""))
    if text := _gpus(service, report):
        found.append(("--gpus", text))
    handled = {
        *_OPTIONS,
        *_SINGLE,
        "environment",
        "ulimits",
        "privileged",
        "image",
        "command",
        "entrypoint",
        "gpus",
    }
    for key in service:
        if key not in handled and not str(key).startswith("x-"):
            why = _NOTHING.get(key, "a setting of the container, which there is no longer")
            if key != "deploy":
                report.note("dropped", str(key), why)
    return found


def _item(key: str, item: Any) -> str:
    """The long forms of volumes, ports and env_file as the short ones."""
    if not isinstance(item, dict):
        return str(item)
    if key == "volumes":
        return f"{item.get('source', '')}:{item.get('target', '')}"
    if key == "ports":
        outside = f"{item['published']}:" if item.get("published") else ""
        address = f"{item['host_ip']}:" if item.get("host_ip") else ""
        return f"{address}{outside}{item.get('target', '')}"
    return str(item.get("path", ""))


def _pairs(value: Any) -> list[tuple[str, str | None]]:
    if isinstance(value, dict):
        return [(str(n), None if v is None else _plain(v)) for n, v in value.items()]
    found: list[tuple[str, str | None]] = []
    for item in value if isinstance(value, list) else []:
        name, equals, text = str(item).partition("=")
        found.append((name, text if equals else None))
    return found


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(value: Any, report: Report) -> list[str] | None:
    """A list as it is; a text in the words of a shell, as compose itself splits it."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    try:
        simple = commands(str(value).replace("\n", " "))
    except Unreadable as error:
        report.refuse(str(error), key="command")
        return []
    if len(simple) > 1:
        report.refuse(
            "holds operators of a shell, which compose hands to the program as text", key="command"
        )
    scope = Scope()
    return [w for one in simple[:1] for word in one.words for w in expand(word, scope)]


def _gpus(service: Mapping[str, Any], report: Report) -> str:
    if (short := service.get("gpus")) is not None:
        return "all" if short == "all" else _request(short[0] if isinstance(short, list) else {})
    deploy = service.get("deploy")
    at: Any = deploy
    for key in ("resources", "reservations", "devices"):
        at = at.get(key) if isinstance(at, dict) else None
    requests = [one for one in at or [] if isinstance(one, dict)] if isinstance(at, list) else []
    return _request(requests[0]) if requests else ""


def _request(one: Any) -> str:
    if not isinstance(one, dict):
        return ""
    if ids := one.get("device_ids"):
        return f"device={','.join(str(i) for i in ids)}"
    count = one.get("count", "all")
    return str(count)
