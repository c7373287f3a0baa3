"""What becomes of each setting of a container: carried, answered in another way, or lost. None of
them goes without a word."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from opsctl.importing.marks import plain, theirs, whole
from opsctl.importing.model import Container, Report

_STARTED = {
    *("--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--init", "--replace", "--pull"),
    *("--sig-proxy", "-q", "--quiet", "--disable-content-trust", "--tls-verify", "--cidfile"),
}
_NAMES = "the host's own names are used: write it into /etc/hosts, or the host's resolver"
_LIMIT = "opsctl's unit sets no such limit"
_LOST = {
    **dict.fromkeys(("--memory", "--memory-swap", "--memory-reservation", "--pids-limit"), _LIMIT),
    **dict.fromkeys(("--cpus", "--cpuset-cpus", "--cpuset-mems", "--cpu-shares", "-c"), _LIMIT),
    "--oom-score-adj": _LIMIT,
    **dict.fromkeys(("--add-host", "--dns", "--dns-search", "--dns-option"), _NAMES),
}
_LOG = "what the engine prints is in the journal"
_RIGHTS = "the engine needs no rights beyond its devices"
_REPLACED = {
    "--ipc": "the engine's processes share the host's memory: there is no wall between them",
    "--shm-size": "/dev/shm is the host's: half of its RAM unless its mount says otherwise",
    "--ulimit": "opsctl's unit sets LimitMEMLOCK=infinity and LimitNOFILE=1048576",
    "--restart": "systemd starts the service again, and stops when that does not help",
    "--runtime": "the engine uses the host's driver",
    "--privileged": _RIGHTS,
    "--cap-add": _RIGHTS,
    "--security-opt": "opsctl's unit has its own hardening",
    "--log-driver": _LOG,
    "--log-opt": _LOG,
    "--device": "the unit may use the host's devices",
    "--group-add": "the user of the service must be in the groups of the devices",
    "--stop-timeout": "timing.drain says how long requests in flight may take",
    "--network": "the service listens on the host's own addresses",
    "--publish-all": "the service listens on its own port, which host and port say",
    "-P": "the service listens on its own port, which host and port say",
    "--workdir": "a service starts in a folder of its own: relative paths of flags count from this "
    "one, and are written in full",
}
_CHANGED = {
    "--env-file": "its variables stand in the description themselves",
    "--entrypoint": "the first word of the command",
}
# Each of their values is told by itself, once it is known what the engine makes of it.
_ELSEWHERE = {"--env", "--volume", "--mount", "--publish", "--user"}
_CACHE = ("/.cache/huggingface", "/huggingface", "/hub")


def tell(values: Mapping[str, Sequence[str]], called: Mapping[str, str], report: Report) -> None:
    """Of all settings but folders, ports and variables. `values`: by their long names; `called`:
    what the text calls them, where it has names of its own."""
    started = [name for name in values if name in _STARTED]
    if started:
        report.note(
            "dropped", " ".join(started), "systemd starts the engine, keeps it, and clears up"
        )
    for name, given in values.items():
        value = " ".join(v for v in given if v)
        own = called.get(name, name)
        shown = f"{own} {theirs(plain(value))}" if value else own
        if name in _REPLACED:
            report.note("dropped", shown, _REPLACED[name])
        elif name in _LOST:
            report.note("lost", shown, _LOST[name])
        elif name in _CHANGED:
            report.note("changed", shown, _CHANGED[name])
        elif name == "--name":
            report.note("carried", shown, "the service's name, unless another is given")
        elif name == "--gpus":
            if "all" in given[-1:]:
                report.note("dropped", shown, "a service has all GPUs where gpus says nothing")
        elif name not in _STARTED and name not in _ELSEWHERE:
            report.note("dropped", shown, "a setting of the container, which there is no longer")


def ports(
    container: Container, port: int, values: Mapping[str, Any], report: Report
) -> tuple[str, int] | None:
    """Where the engine's own port is published; and what becomes of every other one. `values`: of
    the engine's flags."""
    found: tuple[str, int] | None = None
    for address, outside, inside in container.ports:
        shown = f"port {outside}" if outside == inside else f"port {outside} → {inside}"
        if container.host_network:
            report.note("dropped", shown, "with the host's network nothing is published")
        elif inside != port:
            _other(shown, inside, values, report)
        elif found is None:
            found = address or "0.0.0.0", outside
        else:
            why = (
                "the engine listens on one port alone: who used this one needs a proxy on the host"
            )
            report.note("lost", shown, why)
    if container.ports and found is None and not container.host_network:
        report.note("told", f"port {port}", "the container published other ports than the engine's")
    return found


def _other(shown: str, inside: int, values: Mapping[str, Any], report: Report) -> None:
    using = [name for name, value in values.items() if value == inside and "port" in name]
    if using:
        why = f"{using[0]} is a port of the host's own now: {inside}"
        report.note("changed", shown, why)
    else:
        report.note("dropped", shown, "no flag of the engine names it")


def folders(
    container: Container, model: str, env: Mapping[str, str], own: Sequence[str], report: Report
) -> None:
    """What becomes of each folder that no flag named. `model`: as the command named it; `own`:
    places of folders that the operator gave."""
    for mount in container.mounts:
        inside = [n for n, value in env.items() if _within(value, mount.target)]
        source = plain(mount.source) if mount.source else ""
        target, there = theirs(mount.target), theirs(source) if source else "a volume"
        shown = f"{there} at {target}"
        if inside:
            why = f"{target} was {there} of the host: write in env where it is now"
            report.note("told", f"{', '.join(inside)} names a folder of the container", why)
        if mount.target in container.used or mount.target in own or inside:
            continue
        if mount.target.rstrip("/").endswith(_CACHE) and whole(mount.source or ""):
            hub = posixpath.join(source, "" if mount.target.endswith("/hub") else "hub")
            report.note("dropped", shown, _of_the_hub(model, theirs(hub)))
        else:
            report.note("dropped", shown, "no flag of the engine names a path in it")


def _within(value: str, target: str) -> bool:
    return any(
        (part + "/").startswith(target.rstrip("/") + "/") for part in value.split(":") if target
    )


def _of_the_hub(model: str, hub: str) -> str:
    if model.startswith(("/", ".")) or model.count("/") != 1:
        return "a hub's cache, which the model did not come from"
    name = theirs(f"models--{model.replace('/', '--')}")
    return (
        "a hub's cache, and opsctl serves folders: the files that are there already are in "
        f"{hub}/{name}/snapshots; copy them (cp -rL) to the model's folder, or let it be fetched"
    )
