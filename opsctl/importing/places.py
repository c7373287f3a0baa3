"""Values that a description writes in places of their own, and paths that are others on the host.

What is changed here is changed in `Places.values`, in which the rendered command line is then
held against what was imported: nothing else may differ.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opsctl.engine import Catalogue
from opsctl.engine.jsonforms import file_of
from opsctl.importing import containerfates
from opsctl.importing.containerpaths import ALSO_PATHS, ENDINGS, of_mount, outside
from opsctl.importing.marks import theirs
from opsctl.importing.model import Container, Launch, Report
from opsctl.importing.secrets import by_form

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
# Text that may begin with a slash, and yet is no path of the host.
_NO_PATHS = {"fastapi-root-path", "uvicorn-access-log-exclude-prefixes", "served-model-name"}
# A hub's name is meant where it stands here without a leading slash.
_MODELS = {"tokenizer-path", "speculative-draft-model-path", "lora-paths", "model-path"}
_FILES = (".jinja", ".json", ".yaml", ".yml", ".toml")


@dataclass
class Places:
    """The engine's values as the description will give them. `model`: None if it was refused."""

    values: dict[str, Any]
    model: str | None = None
    served_name: str | None = None
    host: str = "127.0.0.1"
    port: int = 30000
    told: set[str] = field(default_factory=set)  # flags that the report says were changed


def places(
    found: dict[str, Any], known: Catalogue, launch: Launch, models: str, model: str, report: Report
) -> Places:
    """`models`: the folder on the host for a model that is named as a hub names it; `model`: the
    folder that the operator gave, "" if none."""
    values = {name: _moved(name, value, launch, report) for name, value in found.items()}
    placed = Places(values)
    placed.told = {name for name, value in values.items() if value != found[name]}
    _model(found, placed, launch, models, model, report)
    _address(values, placed, launch.container, report)
    return placed


def _model(
    found: dict[str, Any], placed: Places, launch: Launch, models: str, model: str, report: Report
) -> None:
    written = found.get("model-path")
    if written is None:
        if not any(p.key == "flags.model-path" for p in report.problems):
            report.refuse(
                "names no model",
                key="model.path",
                hint="add --model-path, or give --model-path to this command",
            )
        return
    path = placed.values["model-path"]
    served = found.get("served-model-name")
    if model:
        path = model
    elif not str(path).startswith("/"):
        _either("model-path", str(path), launch, report)
        path = _hub(str(path), models, report)
    if path is None:
        return
    placed.model = placed.values["model-path"] = _plain_path(path)
    if placed.model != written:
        placed.told.add("model-path")
    if placed.model != written and path != model:
        reason = "" if str(written).startswith("/") else ", and opsctl serves folders of the host"
        if path == _plain_path(path) or reason:
            report.note(
                "changed",
                f"model-path: {theirs(written)} → {theirs(placed.model)}",
                f"it is the model's folder on the host{reason}; it must be there before "
                "a deployment",
            )
    elif placed.model != written:
        report.note(
            "changed",
            f"model-path: {theirs(written)} → {theirs(placed.model)}",
            "as --model-path says",
        )
    if placed.model.startswith(("/home/", "/root")):
        report.note(
            "told",
            f"model-path: {theirs(placed.model)}",
            "in a home: the user of the service must be able to read it",
        )
    placed.served_name = served
    if served is None and by_form(str(written)):
        report.note(
            "told",
            "model.served_name",
            "not set: the name that the engine took, the whole address, holds a secret",
        )
    elif served is None and placed.model != written:
        placed.served_name = placed.values["served-model-name"] = written
        placed.told.add("served-model-name")
        report.note(
            "changed",
            f"served-model-name: {theirs(written)}",
            "clients keep the name that they "
            "used: the engine takes the path for it where none is set",
        )


def _plain_path(path: str) -> str:
    """Without what means nothing; a unit takes no path with it."""
    return re.sub(r"/(\.?/)+", "/", f"{path}/").rstrip("/") or "/"


def _hub(written: str, models: str, report: Report) -> str | None:
    if re.match(r"[A-Za-z0-9+.-]+://", written):
        s3 = " (model.source.s3 fetches it there)" if written.startswith("s3://") else ""
        report.refuse(
            "is a remote model, which the engine itself would load at each start; opsctl serves "
            "folders of the host",
            key="model.path",
            value=written,
            hint=f"say which folder of the host it shall be in: --model-path DIR{s3}",
        )
        return None
    if written.startswith((".", "~")) or written.count("/") > 1:
        report.refuse(
            "is a path from the folder in which the command was started",
            key="model.path",
            value=written,
            hint="give that folder: --cwd DIR",
        )
        return None
    name = written.rstrip("/").split("@")[0].rsplit("/", 1)[-1]
    if not re.fullmatch(r"[\w.-]+", name) or set(name) == {"."}:
        report.refuse("names no folder and no model of a hub", key="model.path", value=written)
        return None
    return f"{models.rstrip('/')}/{name}"


def _address(
    values: dict[str, Any], placed: Places, container: Container | None, report: Report
) -> None:
    host, port = values.get("host", "127.0.0.1"), values.get("port", 30000)
    published = containerfates.ports(container, port, values, report) if container else None
    if published is not None:
        if published != (host, port):
            report.note(
                "changed",
                f"{host}:{port} → {published[0]}:{published[1]}",
                "the container's port is published there; the service listens there itself",
            )
        placed.told |= {"host", "port"}
        host, port = published
    placed.host = values["host"] = host
    placed.port = values["port"] = port


def _moved(name: str, value: Any, launch: Launch, report: Report) -> Any:
    if name in _NO_PATHS:
        return value
    return _each(value, lambda text: _path(name, text, launch, report), name)


def _each(value: Any, change: Callable[[str], str], name: str) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each(part, change, name) for part in value]
    if isinstance(value, dict):
        return {
            key: _each(part, change, name) if key != "lora_name" else part
            for key, part in value.items()
        }
    return value


def _path(name: str, text: str, launch: Launch, report: Report) -> str:
    if name == "lora-paths" and "=" in text:
        head, _, tail = text.partition("=")
        return f"{head}={_path(name, tail, launch, report)}"
    if file := file_of(name, text):
        return file[0] + _absolute(name, file[1], launch, report)
    if text.startswith("/"):
        return outside(name, text, launch.container, report)
    if _relative(name, text) or text in (launch.folders or ()):
        return _absolute(name, text, launch, report)
    if name != "model-path" and is_hub_name(name, text):
        _either(name, text, launch, report)
    return text


def _either(name: str, text: str, launch: Launch, report: Report) -> None:
    """What reads like a hub's name is a folder to the engine, if there is one where it works."""
    if launch.folders is not None or launch.cwd in (None, "/"):
        return
    full = posixpath.normpath(posixpath.join(str(launch.cwd), text))
    if launch.container is not None:
        there = of_mount(full, launch.container)
        if there is None:
            return  # in the image: whoever runs a hub's model has no folder of its name there
        full = there
    give = f"--model-path {full}" if name == "model-path" else f"write flags.{name} in full"
    report.note(
        "told",
        f"{name}: {theirs(text)}",
        f"was taken for a model of a hub; if {theirs(full)} is a folder of the host, the engine "
        f"took that one: {give}",
    )


def _absolute(name: str, text: str, launch: Launch, report: Report) -> str:
    if text.startswith("/"):
        return outside(name, text, launch.container, report, path=True)
    if launch.cwd is None:
        key = "model.path" if name == "model-path" else f"flags.{name}"
        report.refuse(
            "is a path from the folder in which the command was started",
            key=key,
            value=text,
            hint="give that folder: --cwd DIR",
        )
        return text
    full = posixpath.normpath(posixpath.join(launch.cwd, text))
    report.note(
        "changed",
        f"{name}: {theirs(text)} → {theirs(full)}",
        "a service starts in a folder of its own",
    )
    return outside(name, full, launch.container, report, path=True)


def _relative(name: str, text: str) -> bool:
    """Whether the engine would look for it in the working directory."""
    if text.startswith(("./", "../")):
        return name.endswith(ENDINGS) or name in ALSO_PATHS
    if name in _MODELS:
        return text.count("/") > 1 and "://" not in text
    if name in ALSO_PATHS:
        return not text.startswith("{") and ("/" in text or text.endswith(_FILES))
    return name.endswith(ENDINGS) and "://" not in text and text not in ("", "auto")


def is_hub_name(name: str, value: Any) -> bool:
    return name in _MODELS and isinstance(value, str) and _HUB.fullmatch(value) is not None
