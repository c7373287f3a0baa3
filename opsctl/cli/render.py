"""`opsctl render`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opsctl.cli.console import data
from opsctl.cli.console import write as write_out
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError


def render(
    settings: Settings,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder to write to: DIR/HOST/SERVICE/…")
    ],
    hosts: Annotated[
        list[str] | None, typer.Argument(metavar="HOST", help="All, if none is named.")
    ] = None,
) -> None:
    """Write releases to a folder, offline.

    Every file of every release, by host, byte for byte as it would be staged. Touches no host.

    What a forecast would need from the hosts is left out: their expectations are null.
    """
    from opsctl import inventory
    from opsctl.release import render as rendered
    from opsctl.release.write import write

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    limit = hosts or settings.hosts
    chosen = inventory.select(inventory.book_of(path, raw), limit=limit)
    chosen.must_be_read()
    described = inventory.parse(path, raw, chosen.names)
    releases = {
        name: [
            rendered(service, entry) for service, entry in described.hosts[name].services.items()
        ]
        for name in chosen.names
    }
    try:
        folders = write(releases, out)
    except OSError as error:
        raise OpsctlError(
            f"cannot write {error.filename or out}: {error.strerror or error}",
            hint="give another --out",
        ) from error
    if settings.form is Output.text:
        write_out("".join(f"{folder}\n" for folder in folders))
        return
    entries = [
        {"host": name, "service": one.service, "digest": one.digest, "files": sorted(one.files)}
        for name, found in releases.items()
        for one in found
    ]
    data({"schema_version": 1, "releases": entries}, settings.form, each="releases")
