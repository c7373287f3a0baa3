"""The files of catalogues: one a version, each only what differs from another version's.

    {"version": "0.5.22", "like": "0.5.23", "flags": {
    "hicache-ratio": {"kind": "float", "default": 2.0},
    "attn-dp-size": null
    }}

`like` names the version that the rest is taken from, and null takes a flag away; a file without
`like` is whole. opsctl's own stand in engine/data. What an operator adds stands in the user's data
folder, whole, so that it stays right when opsctl's own files are corrected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from opsctl.engine.order import age, is_version
from opsctl.errors import OpsctlError

Table = Mapping[str, Mapping[str, Any]]


def own() -> Traversable:
    return files("opsctl.engine").joinpath("data")


def added() -> Path:
    """Where `opsctl catalog add` writes: $XDG_DATA_HOME/opsctl/catalogue, which is
    ~/.local/share/opsctl/catalogue unless that variable says otherwise."""
    home = os.environ.get("XDG_DATA_HOME") or ""
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "opsctl" / "catalogue"


@cache
def where() -> dict[str, Traversable]:
    """The file of each version, oldest version first. opsctl's own count more than added ones; an
    added one that cannot be read is none (`broken`): it must not stop what other versions need."""
    found = _files()
    return {v: found[v] for v in sorted(found, key=age) if v not in broken()}


@cache
def broken() -> dict[str, str]:
    """Versions whose added file cannot be read → what is wrong with it."""
    found: dict[str, str] = {}
    for version, file in _files().items():
        if not own().joinpath(file.name).is_file():
            try:
                _read(file)
            except OpsctlError as error:
                found[version] = str(error)
    return found


def _files() -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for folder in (added(), own()):
        try:
            names = [p for p in folder.iterdir() if p.name.endswith(".json")]
        except OSError:
            continue  # nothing was ever added
        found |= {v: p for p in names if is_version(v := p.name.removesuffix(".json"))}
    return found


@cache
def table(version: str) -> Table:
    """The entries of all flags of a version by canonical name. Raises KeyError: there is none;
    OpsctlError: its file cannot be read."""
    written = _read(where()[version])
    if "like" not in written:
        whole: Table = written["flags"]
        return whole
    entries = {**table(written["like"]), **written["flags"]}
    return {name: entry for name, entry in entries.items() if entry is not None}


@cache
def names(version: str) -> Mapping[str, str]:
    """Every exact name of a version's flags → the canonical one. Raises as `table` does."""
    entries = table(version)
    return {n: name for name, e in entries.items() for n in (name, *e.get("aliases", ()))}


def _read(file: Traversable) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
        found["flags"].items()
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise OpsctlError(
            f"the catalogue {file} cannot be read: {error}",
            hint=f"make it anew: opsctl catalog add {file.name.removesuffix('.json')}",
        ) from error
    return found


def text(version: str, entries: Table, like: str | None = None, base: Table | None = None) -> str:
    """A file's text: whole, or what differs from `base`, which is the table of `like`. A line a
    flag, so that a diff can be read."""
    before = base or {}
    lines: dict[str, Any] = {n: e for n, e in entries.items() if before.get(n) != e}
    lines |= {name: None for name in before if name not in entries}
    head = {"version": version} | ({"like": like} if like else {})
    body = ",\n".join(f'"{name}": {json.dumps(lines[name])}' for name in sorted(lines))
    return f'{json.dumps(head)[:-1]}, "flags": {{\n{body}\n}}}}\n'


def own_texts(version: str, entries: Table) -> dict[str, str]:
    """opsctl's own files to write for a version: its own, against the version with the least
    difference; and, if it is there already, those that were written against it, anew."""
    ours = [v for v in where() if own().joinpath(f"{v}.json").is_file()]
    follow = [v for v in ours if _like(v) == version]
    free = [v for v in ours if version not in _line(v)]
    at = sorted([*free, version], key=age).index(version)
    written = {v: text(version, entries, v, table(v)) for v in free}
    like = min(free, key=lambda v: (len(written[v]), abs(free.index(v) - at)), default=None)
    found = {version: written[like] if like else text(version, entries)}
    return found | {v: text(v, table(v), version, entries) for v in follow}


def _like(version: str) -> str | None:
    like: str | None = _read(where()[version]).get("like")
    return like


def _line(version: str) -> list[str]:
    """The version and those that its file is written against."""
    like = _like(version)
    return [version, *(_line(like) if like else [])]
