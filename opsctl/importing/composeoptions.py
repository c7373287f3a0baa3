"""What a service of a compose file says → options as `docker run` has them, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opsctl.importing import dotenv
from opsctl.importing.files import for_each, given, which
from opsctl.importing.marks import plain, theirs
from opsctl.importing.model import Report

Reader = Callable[[str, Mapping[str, str]], dict[str, str]]
_OPTIONS = {
    "volumes": "--volume",
    "ports": "--publish",
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
    "profiles": "a service is deployed by its name",
    "labels": "there is no container any more",
}


def options(service: Mapping[str, Any], report: Report) -> list[tuple[str, str]]:
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
        "env_file",
        "deploy",
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
            report.note("dropped", theirs(str(key)), why)
    return found


def called(service: Mapping[str, Any]) -> dict[str, str]:
    """What compose calls each option."""
    names = {option: key for key, option in [*_OPTIONS.items(), *_SINGLE.items()]}
    gpus = "gpus" if "gpus" in service else "deploy.resources.reservations.devices"
    more = {"--ulimit": "ulimits", "--privileged": "privileged", "--gpus": gpus}
    return {**names, **more, "--entrypoint": "entrypoint"}


def _item(key: str, item: Any) -> str:
    """The long forms of volumes and ports as the short ones."""
    if not isinstance(item, dict):
        return str(item)
    if key == "volumes":
        return f"{item.get('source', '')}:{item.get('target', '')}"
    if key != "ports":
        return str(item.get("source") or item.get("path") or "")
    outside = f"{item['published']}:" if item.get("published") else ""
    address = f"{item['host_ip']}:" if item.get("host_ip") else ""
    return f"{address}{outside}{item.get('target', '')}"


def _pairs(value: Any) -> list[tuple[str, str | None]]:
    if isinstance(value, dict):
        return [(str(n), None if v is None else plainly(v)) for n, v in value.items()]
    found: list[tuple[str, str | None]] = []
    for item in value if isinstance(value, list) else []:
        name, equals, text = str(item).partition("=")
        found.append((name, text if equals else None))
    return found


def plainly(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def env_files(
    service: Mapping[str, Any],
    files: Mapping[str, str],
    known: Mapping[str, str],
    read: Reader,
    report: Report,
) -> list[tuple[str, str]]:
    """Their variables, each as an option, before those of `environment`, which win. `read`:
    compose's own format of them."""
    found: dict[str, str] = {}
    value = service.get("env_file")
    items = value if isinstance(value, list) else [value] if value is not None else []
    ones = [item if isinstance(item, dict) else {"path": item} for item in items]
    paths = [str(one.get("path", "")) for one in ones]
    for one, path in zip(ones, paths, strict=True):
        shown, text = theirs(plain(path)), given(for_each(files, paths), path, variables=True)
        if text is not None:
            raw = one.get("format") == "raw"
            found |= dotenv.plain(text, known) if raw else read(text, known)
            report.note("changed", f"env_file {shown}", "its variables stand in the description")
        elif one.get("required") is False:
            why = "was not given, and may be missing: what it sets is not known; give it with"
            report.note("told", f"env_file {shown}", f"{why} --file {shown}=COPY")
        else:
            report.refuse(
                f"variables come from {shown}, which was not given",
                hint=which(files, shown),
            )
    return [("--env", f"{name}={value}") for name, value in found.items()]


def deployed(deploy: Any, report: Report) -> None:
    """What stands beside the GPUs."""
    if not isinstance(deploy, dict):
        return
    resources = deploy.get("resources")
    for key, value in deploy.items():
        if key == "replicas" and str(value) not in ("0", "1"):
            report.note("lost", f"deploy.replicas {value}", "one engine of a service on a host")
        elif key not in ("resources", "replicas"):
            report.note("dropped", f"deploy.{key}", "a setting of the container's keeper")
    if isinstance(resources, dict) and resources.get("limits"):
        report.note("lost", "deploy.resources.limits", "opsctl's unit sets no such limit")


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
