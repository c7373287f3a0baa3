"""`docker run` (podman, nerdctl) and what a container's settings mean on the host."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence

from opsctl.importing.files import given
from opsctl.importing.marks import mark, unknown_parts, whole
from opsctl.importing.model import Container, Launch, Mount, Report

PROGRAMS = {"docker", "podman", "nerdctl"}
# Options of `docker run` without a value; all others have one.
_SWITCHES = {
    *("-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--init", "--privileged"),
    *("--no-healthcheck", "--oom-kill-disable", "-P", "--publish-all", "--read-only", "--replace"),
    *("--sig-proxy", "-q", "--quiet", "--disable-content-trust", "--no-hosts", "--tls-verify"),
}
_SHORT = "dit"  # -it, -dit
_LIMITS = {
    "--memory",
    "-m",
    "--cpus",
    "--cpuset-cpus",
    "--cpuset-mems",
    "--memory-swap",
    "--cpu-shares",
    "-c",
    "--oom-score-adj",
    "--pids-limit",
}
_SILENT = {
    *("--name", "--entrypoint", "-e", "--env", "-v", "--volume", "--mount", "-p", "--publish"),
    *("--gpus", "--network", "--net", "-w", "--workdir", "-u", "--user", "--env-file"),
    *("--device", "--hostname", "-h", "-l", "--label", "--pull", "--platform", "--add-host"),
}
# What they are for, and what there is in their place.
_REPLACED = {
    "--ipc": "the engine's processes share the host's memory: there is no wall between them",
    "--shm-size": "/dev/shm is the host's: half of its RAM unless its mount says otherwise",
    "--ulimit": "opsctl's unit sets LimitMEMLOCK=infinity and LimitNOFILE=1048576",
    "--restart": "systemd starts the service again, and stops when that does not help",
    "--runtime": "the engine uses the host's driver",
    "--privileged": "the engine needs no rights beyond its devices",
    "--cap-add": "the engine needs no rights beyond its devices",
    "--security-opt": "opsctl's unit has its own hardening",
    "--log-driver": "what the engine prints is in the journal",
    "--log-opt": "what the engine prints is in the journal",
    "--device": "the unit may use the host's devices",
    "--group-add": "the user of the service must be in the groups of the devices",
    "--stop-timeout": "timing.drain says how long requests in flight may take",
}


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    files: Mapping[str, str],
    mounts: Sequence[tuple[str, str]],
    report: Report,
) -> Launch | None:
    """The container's own command. `env`: of whoever called docker, for `-e NAME`."""
    verb = next((at for at, word in enumerate(argv) if at and not word.startswith("-")), len(argv))
    if list(argv[verb : verb + 1]) not in (["run"], ["create"]):
        shown = " ".join(argv[: verb + 1])
        if list(argv[verb : verb + 1]) == ["compose"] or argv[0] == "docker-compose":
            hint = "import the compose file: opsctl import FILE --kind compose"
        else:
            hint = "import the command that made it (docker run …), or the running process"
        report.refuse(f"{shown} does not say how the container was made", hint=hint)
        return None
    options, rest = parse(argv[verb + 1 :])
    if not rest:
        report.refuse("names no image", key="docker run")
        return None
    settings = Settings(options, report)
    return launch(settings, rest[0], list(rest[1:]), env, files, mounts)


def parse(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """(option, value) in order, and the image with the command."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            break
        at += 1
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if not word.startswith("--") and re.fullmatch(rf"-[{_SHORT}]+", word):
            found += [(f"-{letter}", "") for letter in word[1:]]
        elif not word.startswith("--") and len(name) > 2 and name[:2] not in _SWITCHES:
            found.append((word[:2], word[2:].removeprefix("=")))
        elif name in _SWITCHES or equals:
            found.append((name, value))
        elif at < len(words):
            found.append((name, words[at]))
            at += 1
    return found, list(words[at:])


_LONG = {
    "-e": "--env",
    "-v": "--volume",
    "-p": "--publish",
    "-w": "--workdir",
    "-u": "--user",
    "--net": "--network",
    "-m": "--memory",
    "-d": "--detach",
    "-h": "--hostname",
    "-l": "--label",
}


class Settings:
    """Options by their long names, each with all its values."""

    def __init__(self, options: Sequence[tuple[str, str]], report: Report) -> None:
        self.values: dict[str, list[str]] = {}
        self.report = report
        for name, value in options:
            self.values.setdefault(_LONG.get(name, name), []).append(value)

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def last(self, name: str, default: str = "") -> str:
        return self.values.get(name, [default])[-1]


def launch(
    settings: Settings,
    image: str,
    command: list[str],
    env: Mapping[str, str],
    files: Mapping[str, str],
    mounts: Sequence[tuple[str, str]],
    entrypoint: list[str] | None = None,
) -> Launch | None:
    report = settings.report
    _told(settings, report)
    if entrypoint is None and "--entrypoint" in settings.values:
        entrypoint = [word for word in [settings.last("--entrypoint")] if word]
    argv = _command(image, entrypoint, command, report)
    if argv is None:
        return None
    container = Container(
        image,
        [*(Mount(s, t) for s, t in mounts), *_mounts(settings)],
        _ports(settings, report),
        settings.last("--network") == "host",
    )
    variables = _environment(settings, env, files, report)
    container.gpus = _gpus(settings, variables, report)
    user = settings.last("--user")
    if user:
        report.note("dropped", f"user {user} of the container", "the service has a user of its own")
    return Launch(
        argv,
        variables,
        cwd=settings.last("--workdir") or None,
        container=container,
        name=settings.last("--name") or None,
        wrapped=["docker"],
    )


def _command(
    image: str, entrypoint: list[str] | None, command: list[str], report: Report
) -> list[str] | None:
    argv = [*(entrypoint or []), *command]
    if not argv or (argv[0].startswith("-") and not entrypoint):
        report.refuse(
            "the image's own start says which program it is, and the text does not",
            value=image,
            hint="give the command that it runs: docker inspect IMAGE shows Entrypoint and Cmd",
        )
        return None
    return argv


def _told(settings: Settings, report: Report) -> None:
    for name, values in settings.values.items():
        shown = f"{name} {' '.join(v for v in values if v)}".strip()
        if name in _REPLACED:
            report.note("dropped", shown, _REPLACED[name])
        elif name in _LIMITS:
            report.note("lost", shown, "opsctl's unit sets no such limit")
        elif name not in _SILENT and name not in _SWITCHES and name not in _LONG.values():
            report.note("dropped", shown, "a setting of the container, which there is no longer")


def _mounts(settings: Settings) -> list[Mount]:
    found = []
    for text in settings.all("--volume"):
        parts = re.findall("(?:\0[^\0]*\0|[^:\0])+", text)
        if len(parts) >= 2:
            found.append(Mount(_source(parts[0]), parts[1]))
    for text in settings.all("--mount"):
        pairs = dict(part.partition("=")[::2] for part in text.split(","))
        target = next((pairs[k] for k in ("target", "destination", "dst") if k in pairs), "")
        source = next((pairs[k] for k in ("source", "src") if k in pairs), "")
        if target:
            found.append(Mount(_source(source) if pairs.get("type") == "bind" else None, target))
    return found


def _source(text: str) -> str | None:
    """A folder of the host, perhaps with marks; None for a volume's name."""
    if text.startswith("."):
        return mark("folder", text)
    return text if text.startswith("/") or not whole(text) else None


def _ports(settings: Settings, report: Report) -> list[tuple[str, int, int]]:
    found = []
    for text in settings.all("--publish"):
        if not whole(text):
            for message, hint in unknown_parts(text):
                report.refuse(message, key="--publish", hint=hint)
            continue
        bare = text.partition("/")[0]
        match = re.fullmatch(r"(?:(\[[0-9a-fA-F:]+\]|[^:\[\]]*):)?(?:([0-9]*):)?([0-9]+)", bare)
        if match is None or "-" in bare:
            report.refuse("is no single port", key="--publish", value=bare)
            continue
        address, outside, inside = match.groups()
        if address and address.isdigit() and outside is None:
            address, outside = "", address
        found.append(((address or "").strip("[]"), int(outside or inside), int(inside)))
    return found


def _environment(
    settings: Settings, env: Mapping[str, str], files: Mapping[str, str], report: Report
) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in settings.all("--env-file"):
        if (text := given(files, path, variables=True)) is not None:
            found |= env_file(text)
        else:
            report.refuse(
                f"variables come from {path}, which was not given",
                hint=f"give it: --file {path}=COPY",
            )
    for text in settings.all("--env"):
        name, equals, value = text.partition("=")
        found[name] = value if equals else env.get(name, mark("variable", name))
    return found


def env_file(text: str) -> dict[str, str]:
    """docker's own format: NAME=VALUE a line, nothing quoted, nothing expanded."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not line.lstrip().startswith("#"):
            found[name.strip()] = value
    return found


def _gpus(settings: Settings, env: dict[str, str], report: Report) -> tuple[int, ...] | None:
    text = settings.last("--gpus") or _devices(settings)
    if not text and (visible := env.get("NVIDIA_VISIBLE_DEVICES", "all")) not in ("all", ""):
        text = f"device={visible}"
    return gpus(text, report)


def _devices(settings: Settings) -> str:
    """nvidia.com/gpu=0 as CDI names GPUs."""
    names = [v.partition("gpu=")[2] for v in settings.all("--device") if "nvidia.com/gpu=" in v]
    return "" if not names or "all" in names else f"device={','.join(names)}"


def gpus(text: str, report: Report) -> tuple[int, ...] | None:
    """'all', a count, or "device=4,5" (docker's own value is a line of CSV)."""
    if text in ("", "all"):
        return None
    parts = next(csv.reader([text.strip("'")]), [])
    pairs = dict(part.partition("=")[::2] for part in parts)
    listed = pairs.get("device") or pairs.get('"device')
    if listed is None:
        bare = next((p for p in parts if p.isdigit()), pairs.get("count", ""))
        if bare == "all":
            return None
        if not bare.isdigit() or not 0 < int(bare) <= 1024:
            report.refuse("does not say which GPUs", key="--gpus", value=text)
            return None
        report.note(
            "changed",
            f"--gpus {text}",
            "a number of GPUs becomes the first ones: check that these were meant",
        )
        return tuple(range(int(bare)))
    items = [i.strip('"') for i in ([listed] + [p for p in parts if p.strip('"').isdigit()])]
    items = [i for item in items for i in item.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", item) for item in items):
        report.refuse(
            "names GPUs in another way than by number",
            key="--gpus",
            value=text,
            hint="nvidia-smi -L shows their numbers",
        )
        return None
    return tuple(int(item) for item in items)
