"""A service of a compose file, as `docker run` would be told of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

import yaml

from opsctl.importing import docker, dotenv
from opsctl.importing.composeoptions import called, deployed, env_files, plainly
from opsctl.importing.composeoptions import options as options_of
from opsctl.importing.marks import mark, theirs
from opsctl.importing.model import Launch, Report
from opsctl.importing.reading import tell_assumed
from opsctl.importing.wrappers import SHELLS

_LARGEST = 1 << 20
_LITERAL = re.compile(r"\$\{?[A-Za-z_]")
_VARIABLE = re.compile(
    r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])((?:[^{}]|\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)"
)


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
    cwd: str = "",
) -> Launch | None:
    """`chosen`: the service's name; `cwd`: the folder of the file, "" if it is not known."""
    services = {str(n): s for n, s in found["services"].items() if isinstance(s, dict)}
    name = chosen or _engine(services, report)
    if name is None:
        return None
    if name not in services:
        report.refuse("is no service of the file", key=name, allowed=", ".join(services))
        return None
    if others := [one for one in found["services"] if str(one) != name]:
        report.note("dropped", theirs(", ".join(map(str, others))), "other services of the file")
    beside = files.get(".env")
    own = _dotenv(beside or "", variables)
    known = {**{n: v for n, v in own.items() if v != mark("variable", n)}, **variables}
    assumed: dict[str, str] = {}
    service = _interpolated(services[name], known, assumed)
    _tell_dotenv(beside, found["services"][name], report)
    deployed(service.get("deploy"), report)
    options = env_files(service, files, known, _dotenv, report) + options_of(service, report)
    settings = docker.Settings(options, report, cwd, called(service))
    home = known.get("HOME", mark("home", "~"))
    volumes = settings.values.get("--volume", [])
    volumes[:] = [home + text[1:] if text.startswith("~/") else text for text in volumes]
    entrypoint = _words(service.get("entrypoint"), report)
    command = _words(service.get("command"), report) or []
    words = [*(entrypoint or ()), *command]
    if words and PurePosixPath(words[0]).name not in SHELLS:
        _tell_literal(words, report)
    image = str(service.get("image") or "")
    made = docker.launch(settings, image, command, known, files, mounts, entrypoint)
    if made is not None:
        made.name = made.name or name
        tell_assumed(assumed, made, report)
    return made


def _tell_literal(words: Sequence[str], report: Report) -> None:
    """Of words with a variable that nobody fills in: with the flag that they are the value of."""
    for before, word in pairwise(["", *words]):
        if _LITERAL.search(word):
            flag = before if before.startswith("--") and "=" not in before else ""
            why = "is this very text to the engine: without a shell nothing fills it in (with a "
            why += "single $ compose does)"
            report.note("told", f"{theirs(flag)} {theirs(word)}".strip(), why)


def _dotenv(text: str, known: Mapping[str, str]) -> dict[str, str]:
    return dotenv.quoted(text, known, lambda value, around: _interpolated(value, around, {}))


def _tell_dotenv(beside: str | None, service: Any, report: Report) -> None:
    if not _VARIABLE.search(str(service).replace("$$", "")):
        return
    if beside is None:
        why = "was not given: docker compose takes variables from it: --file .env=COPY"
    else:
        names = ", ".join(_dotenv(beside, {})) or "nothing"
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


def _words(value: Any, report: Report) -> list[str] | None:
    """A list as it is; a text at its blanks, as compose splits it: quotes count, and nothing is
    filled in, since no shell reads it."""
    if value is None:
        return None
    if isinstance(value, list):
        return [plainly(item) for item in value]
    reader = shlex.shlex(str(value), posix=True, punctuation_chars=";&|<>")
    reader.commenters, reader.whitespace_split = "", True
    try:
        found = list(reader)
    except ValueError as error:
        report.refuse(f"is cut off: {error}", key="command")
        return []
    if any(word and set(word) <= set(";&|<>") for word in found):
        report.refuse(
            "holds operators of a shell, which compose hands to the program as text", key="command"
        )
    return found
