"""`opsctl import`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opsctl.cli.console import data, explain, talk, write
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError, Refused, SpecError

if TYPE_CHECKING:
    from opsctl.cli.running import Where
    from opsctl.importing import Asked, Imported

_LARGEST = 1 << 20  # bytes of one file


class Kind(StrEnum):
    auto = "auto"
    command = "command"
    unit = "unit"
    docker = "docker"
    compose = "compose"
    pid = "pid"


def importing(
    settings: Settings,
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]…",
            help="What is run today; - or nothing: stdin. Several: a unit, then its drop-ins.",
        ),
    ] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="What the text is.")] = Kind.auto,
    name: Annotated[
        str, typer.Option("--name", metavar="SERVICE", help="The service's name.")
    ] = "",
    version: Annotated[
        str, typer.Option("--engine-version", metavar="VERSION", help="For example 0.5.9.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it to a new file.")
    ] = None,
    secrets_out: Annotated[
        Path | None,
        typer.Option(
            "--secrets-out", metavar="FILE", help="Write the secrets found to a new 0600 file."
        ),
    ] = None,
    model_path: Annotated[
        str, typer.Option("--model-path", metavar="DIR", help="The model's folder on the host.")
    ] = "",
    models: Annotated[
        str,
        typer.Option("--models", metavar="DIR", help="Where models with a hub's name shall be."),
    ] = "/srv/models",
    cwd: Annotated[
        str, typer.Option("--cwd", metavar="DIR", help="The folder it was started in.")
    ] = "",
    var: Annotated[
        list[str] | None,
        typer.Option("--var", metavar="NAME=VALUE", help="A variable that the text does not set."),
    ] = None,
    env_file: Annotated[
        list[Path] | None,
        typer.Option("--env-file", metavar="FILE", help="Its EnvironmentFile or env_file."),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="PATH=COPY", help="A file that the text speaks of."),
    ] = None,
    mount: Annotated[
        list[str] | None,
        typer.Option("--mount", metavar="HOST:CONTAINER", help="A folder of a container."),
    ] = None,
    service: Annotated[
        str, typer.Option("--service", metavar="NAME", help="Which service of a compose file.")
    ] = "",
    own: Annotated[
        bool,
        typer.Option("--own", help="Also one of opsctl's own units, whose description is lost."),
    ] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="An engine that runs on this host.")
    ] = "",
    unit: Annotated[
        str, typer.Option("--unit", metavar="UNIT", help="With --host: this unit.")
    ] = "",
    pid: Annotated[
        int,
        typer.Option("--pid", metavar="PID", show_default=False, help="With --host: this process."),
    ] = 0,
    container: Annotated[
        str, typer.Option("--container", metavar="ID", help="With --host: this container.")
    ] = "",
) -> None:
    """Describe what is run today.

    Reads a launch command or script, a unit with its drop-ins, a docker run, a compose file, or a
    process of this machine; or, with --host, an engine that runs on a host, by its process, unit
    and container. Runs none of it. The description goes to stdout, the report to stderr;
    nothing is described that would not render to an equivalent command.
    """
    from opsctl.importing import Asked

    asked = Asked(
        name=_named(name),
        version=version,
        models=models,
        model=model_path,
        cwd=cwd,
        variables=dict(_pair(text, "=", "--var") for text in var or ()),
        files=_files(file or (), env_file or ()),
        mounts=tuple(_pair(text, ":", "--mount") for text in mount or ()),
        service=service,
        own=own,
    )
    where = _where(host, unit, pid, container, sources)
    if where is not None:
        from opsctl.cli.running import imported as of_host

        imported = of_host(where, settings, asked)
    else:
        imported = _imported(sources or ["-"], kind, asked)
    out = None if out == Path("-") else out
    _free(imported, out, secrets_out)
    _tell(imported, settings, out)
    if imported.service is None:
        raise SpecError(imported.problems)
    _keep_secrets(imported, secrets_out)


def _where(
    host: str, unit: str, pid: int, container: str, sources: Sequence[str] | None
) -> Where | None:
    from opsctl.cli.running import Where

    if host and sources:
        raise Refused("a file and --host exclude each other", hint="give one of them")
    if not host and (unit or pid or container):
        raise Refused("--unit, --pid and --container need a host", hint="add --host HOST")
    return Where(host, unit, pid, container) if host else None


def _imported(sources: Sequence[str], kind: Kind, asked: Asked) -> Imported:
    from opsctl.importing import from_text

    if kind is Kind.pid:
        from opsctl.cli.processes import imported

        return imported(sources, asked)
    texts = [(_path(source), _read(source)) for source in sources]
    return from_text(texts, kind.value, replace(asked, files=_beside(texts, asked.files)))


def _beside(texts: Sequence[tuple[str, str]], files: Mapping[str, str]) -> Mapping[str, str]:
    """With the `.env` in the folder of a compose file, which docker compose reads there."""
    from opsctl.importing import compose

    (path, text), *more = texts
    beside = Path(path).parent / ".env"
    if more or not path or ".env" in files or compose.document(text) is None:
        return files
    return {**files, ".env": _read(str(beside))} if os.access(beside, os.R_OK) else files


def _free(imported: Imported, out: Path | None, secrets_out: Path | None) -> None:
    """Before anything is written: neither file is somebody's. Raises Refused."""
    from opsctl.importing.written import description

    if imported.service is None:
        return
    if secrets_out == Path("-"):
        raise Refused("--secrets-out - would print the secrets", hint="give the name of a new file")
    if out is not None and out.exists() and _content(out) != description(imported):
        raise Refused(
            f"{out} is there already, and holds another text; nothing was written",
            hint=f"give another --out, or move {out} away first",
        )
    if secrets_out is not None and imported.secrets and os.path.lexists(secrets_out):
        raise Refused(
            f"{secrets_out} is there already; nothing was written",
            hint="give another --secrets-out",
        )
    for path in (out, secrets_out):
        if path is not None and not path.absolute().parent.is_dir():
            raise Refused(f"cannot write {path}: its folder is not there; nothing was written")
    if out is not None and secrets_out is not None and out.absolute() == secrets_out.absolute():
        raise Refused("--out and --secrets-out name one file", hint="give each its own")


def _content(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _tell(imported: Imported, settings: Settings, out: Path | None) -> None:
    from opsctl.importing.written import description
    from opsctl.views.importing import document, report

    if settings.form is not Output.text:
        data(document(imported), settings.form)
    else:
        explain(report(imported), settings)
    if imported.service is None:
        return
    if out is not None:
        if not out.exists():
            _write(out, description(imported), 0o644)
        talk(f"description: {out}")
    elif settings.form is Output.text:
        write(description(imported))


def _keep_secrets(imported: Imported, path: Path | None) -> None:
    from opsctl.importing.written import vault

    if not imported.secrets:
        return
    if path is not None:
        _write(path, vault(imported), 0o600)
        talk(f"secrets: {path}; encrypt it now: ansible-vault encrypt {path}")
        return
    names = ", ".join(imported.secrets)
    talk(
        f"secrets to put into a vault: {names}; with --secrets-out FILE they are written to a 0600 "
        "file, for ansible-vault encrypt"
    )


def _write(path: Path, text: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(path, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} is there already", hint="give another name") from None
    except OSError as error:
        raise OpsctlError(f"cannot write {path}: {error.strerror or error}") from error


def _path(source: str) -> str:
    return "" if source == "-" else str(Path(source).absolute())


def _read(source: str) -> str:
    try:
        if source == "-":
            raw = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            with Path(source).open("rb") as file:
                raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise Refused(
            f"cannot read {source}: {error.strerror or error}",
            hint="give a file, or - for stdin",
        ) from error
    if len(raw) > _LARGEST:
        raise Refused(f"{source} is larger than any launch command: {_LARGEST >> 20} MiB")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refused(f"{source} is not UTF-8 text") from None


def _files(pairs: Sequence[str], env_files: Sequence[Path]) -> dict[str, str]:
    from opsctl.importing.files import ANY

    found = {path: _read(copy) for path, copy in (_pair(p, "=", "--file") for p in pairs)}
    for path in env_files:
        found[str(path)] = found[path.name] = _read(str(path))
    if len(env_files) == 1:
        found[ANY] = found[str(env_files[0])]
    return found


def _pair(text: str, sign: str, option: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name:
        shape = f"HOST{sign}CONTAINER" if sign == ":" else f"NAME{sign}VALUE"
        raise Refused(f"{option} {text!r} has no {sign}", hint=f"write {option} {shape}")
    return name, value


def _named(name: str) -> str:
    from opsctl.spec.kinds import SERVICE_NAME

    if name and not SERVICE_NAME.fullmatch(name):
        raise Refused(
            f"{name!r} is no name for a service", hint="a to z, 0 to 9, . _ - within, 48 characters"
        )
    return name
