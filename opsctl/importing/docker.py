"""`docker run` (podman, nerdctl) and what a container's settings mean on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opsctl.importing import containerfates, containers, dotenv
from opsctl.importing.files import for_each, given, which
from opsctl.importing.marks import mark, theirs
from opsctl.importing.model import Container, Launch, Mount, Report

PROGRAMS = {"docker", "podman", "nerdctl"}
# Options of `docker run` without a value; all others have one.
_SWITCHES = {
    *("-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--init", "--privileged"),
    *("--no-healthcheck", "--oom-kill-disable", "-P", "--publish-all", "--read-only", "--replace"),
    *("--sig-proxy", "-q", "--quiet", "--disable-content-trust", "--no-hosts", "--tls-verify"),
}
_SHORT = "dit"  # -it, -dit


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    files: Mapping[str, str],
    mounts: Sequence[tuple[str, str]],
    report: Report,
    cwd: str = "",
) -> Launch | None:
    """The container's own command. `env`: of whoever called docker, for `-e NAME`; `cwd`: the
    folder in which, "" if it is not known."""
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
    settings = Settings(options, report, cwd)
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
    "--label-file": "--label",
}


class Settings:
    """Options by their long names, each with all its values. `cwd`: the folder that relative paths
    start from, "" if it is not known; `called`: what the text calls them, where it has names of
    its own."""

    def __init__(
        self,
        options: Sequence[tuple[str, str]],
        report: Report,
        cwd: str = "",
        called: Mapping[str, str] | None = None,
    ) -> None:
        self.values: dict[str, list[str]] = {}
        self.report, self.cwd, self.called = report, cwd, called or {}
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
    containerfates.tell(settings.values, settings.called, report)
    if entrypoint is None and "--entrypoint" in settings.values:
        entrypoint = [word for word in [settings.last("--entrypoint")] if word]
    argv = _command(image, entrypoint, command, report)
    if argv is None:
        return None
    container = Container(
        image,
        [*(Mount(s, t) for s, t in mounts), *containers.mounts(settings.values, settings.cwd)],
        containers.ports(settings.values, settings.called, report),
        settings.last("--network") == "host",
    )
    variables = _environment(settings, env, files, report)
    container.gpus = containers.chosen(settings.values, variables, settings.called, report)
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
    if argv and argv[0].startswith("-") and any("sglang" in word for word in argv[1:]):
        report.refuse(
            f"{theirs(argv[0])} stands after the image, so it is a part of the command",
            hint="options of docker stand before the image",
        )
        return None
    if not argv or (argv[0].startswith("-") and not entrypoint):
        report.refuse(
            "the image's own start says which program it is, and the text does not",
            value=image,
            hint="give the command that it runs: docker inspect IMAGE shows Entrypoint and Cmd",
        )
        return None
    return argv


def _environment(
    settings: Settings, env: Mapping[str, str], files: Mapping[str, str], report: Report
) -> dict[str, str]:
    found: dict[str, str] = {}
    paths = settings.all("--env-file")
    for path in paths:
        if (text := given(for_each(files, paths), path, variables=True)) is not None:
            found |= dotenv.plain(text, env)
        else:
            report.refuse(
                f"variables come from {path}, which was not given",
                hint=which(files, path),
            )
    for text in settings.all("--env"):
        name, equals, value = text.partition("=")
        found[name] = value if equals else env.get(name, mark("variable", name))
    return found
