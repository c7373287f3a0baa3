"""`opsctl catalog list|add|diff`: the flags of each version of SGLang, and what a change of
version does to a service."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli.console import data, show, talk, write
from opsctl.cli.frame import Output, Settings, framed
from opsctl.errors import OpsctlError, Refused

if TYPE_CHECKING:
    from opsctl.engine.adding import Added
    from opsctl.engine.changes import Change

app = typer.Typer(
    help="Show and add the flags of SGLang versions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Version = Annotated[str, typer.Argument(metavar="VERSION", help="For example 0.5.9.")]


@app.command("list")
@framed
def list_catalogues(settings: Settings) -> None:
    """Show the versions that opsctl knows, with their flags."""
    from opsctl.engine import store
    from opsctl.views.catalog import rows, table

    found = rows()
    for version, wrong in store.broken().items():
        talk(f"{wrong}; make it anew: opsctl catalog add {version}")
    if settings.form is Output.text:
        show(table(found), settings)
    else:
        document = {"schema_version": 1, "versions": [asdict(row) for row in found]}
        data(document, settings.form, each="versions")


@app.command()
@framed
def add(
    version: Version,
    settings: Settings,
    given: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="WHEEL|FOLDER",
            help="A wheel, or a folder that holds the package. Fetched with pip if none is given.",
        ),
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Into opsctl's own files, for work on opsctl itself.")
    ] = False,
) -> None:
    """Read a version's flags from its released package.

    Nothing of the package is run. What is read is kept in $XDG_DATA_HOME/opsctl/catalogue
    (~/.local/share/opsctl/catalogue) and holds for every command from then on.
    """
    from opsctl.cli.released import opened
    from opsctl.engine.adding import added
    from opsctl.engine.order import is_version

    if not is_version(version):
        raise Refused(f"{version!r} is no version", hint="write an exact one, such as 0.5.9")
    if given is None:
        talk(f"fetching sglang {version} with pip")
    with opened(version, given) as package:
        found = added(version, package, own=own)
    for path, text in found.files.items():
        _keep(path, text)
    _tell(found)
    for path in found.files:
        write(f"{path}\n")


def _keep(path: Path, text: str) -> None:
    """Whole or not at all: a catalogue that is cut short would stop every command."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise OpsctlError(
            f"cannot write {path}: {error.strerror or error}",
            hint="set XDG_DATA_HOME to a folder that you may write",
        ) from error


def _tell(found: Added) -> None:
    since = ""
    if found.before:
        since = f", {len(found.new)} new and {len(found.gone)} gone since {found.before}"
    flags = "1 flag" if found.flags == 1 else f"{found.flags} flags"
    talk(f"SGLang {found.version} has {flags}{since}")
    if not found.files:
        talk("its catalogue was there already, and says the same")


@app.command()
@framed
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The version that is.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The version that will be.")],
    settings: Settings,
    service: Annotated[
        str | None,
        typer.Argument(metavar="SERVICE", help="A service's name, or a file that describes one."),
    ] = None,
) -> None:
    """Show what a change of version does to flags: to all, or to a service's.

    Of a service: its flags that are gone, renamed or take other values, defaults that change
    under it where it leaves a flag unset, and advisories that begin or end.
    """
    from opsctl.cli import describing
    from opsctl.engine.changes import changes

    found: list[tuple[str | None, tuple[str, ...], list[Change]]]
    if service is None:
        found = [(None, (), changes(a, b))]
    else:
        found = [
            (one.service, one.hosts, changes(a, b, one.flags, one.facts(a)))
            for one in describing.flags_of(service, settings, a)
        ]
    if settings.form is not Output.text:
        data({"schema_version": 1, "from": a, "to": b, "changes": _rows(found)}, settings.form,
             each="changes")  # fmt: skip
        return
    from opsctl.views.catalog import difference

    for name, hosts, each in found:
        if name is not None:
            write(f"{name}{' on ' + ', '.join(hosts) if hosts else ''}\n")
        show(difference(a, b, each), settings)


def _rows(
    found: list[tuple[str | None, tuple[str, ...], list[Change]]],
) -> list[dict[str, Any]]:
    return [
        {"service": name, "hosts": list(hosts), **asdict(change)}
        for name, hosts, each in found
        for change in each
    ]
