"""Releases → a folder, for `opsctl render --out`: FOLDER/HOST/SERVICE/ holds a release's files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.release.model import File, Release

_MARK = "release.json"  # a folder that holds it was written by us, and is ours to rewrite


def write(releases: Mapping[str, Iterable[Release]], out: Path) -> list[Path]:
    """Write the releases by host; answers the folders, one a release, in order.

    A folder that is there already is rewritten only if it holds a release; files of other hands
    in it are refused. Nothing is written unless all of it can be. Raises OpsctlError, OSError.
    """
    wanted = [
        (out / host / release.service, release)
        for host, of_host in sorted(releases.items())
        for release in of_host
    ]
    for folder, release in wanted:
        _refuse_foreign(folder, release)
    for folder, release in wanted:
        _write_one(folder, release)
    return [folder for folder, _ in wanted]


def _refuse_foreign(folder: Path, release: Release) -> None:
    if folder.is_symlink() or folder.parent.is_symlink():  # secrets go nowhere else
        raise OpsctlError(f"{folder}: a symbolic link, not a folder", hint="give another --out")
    if not folder.exists():
        return
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}
    if not found:
        return
    known = {*release.files, "launch.py"}
    foreign = sorted(f for f in found if f not in known and not f.startswith("secrets/"))
    if foreign or _MARK not in found:
        strange = ", ".join(foreign or sorted(found))
        raise OpsctlError(
            f"{folder} holds files that are not of a release: {strange}",
            hint="give another --out, or remove them",
        )


def _write_one(folder: Path, release: Release) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stale = {p for p in folder.rglob("*") if not p.is_dir()}
    for name, file in sorted(release.files.items()):
        path = folder / name
        path.parent.mkdir(mode=0o700 if name.startswith("secrets/") else 0o755, exist_ok=True)
        _write_file(path, file)
        stale.discard(path)
    for path in stale:
        path.unlink()


def _write_file(path: Path, file: File) -> None:
    """By rename; the file has its mode before it has its content."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as out:
        os.fchmod(fd, file.mode)
        out.write(file.content)
    new.replace(path)
