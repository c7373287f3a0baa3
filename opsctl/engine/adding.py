"""A new catalogue: what a version's options become, and which files hold them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.engine import store
from opsctl.engine.order import age
from opsctl.engine.source import Package, UnknownType, Unreadable, entries, read
from opsctl.errors import OpsctlError, Refused


@dataclass(frozen=True)
class Added:
    """`files`: what to write, empty if all of it stands there already. `before`: the version that
    `new` and `gone` (names of flags) are counted against, None if this is the oldest."""

    version: str
    flags: int
    files: Mapping[Path, str]
    before: str | None
    new: tuple[str, ...]
    gone: tuple[str, ...]


def added(version: str, package: Package, *, own: bool = False) -> Added:
    """`own`: into opsctl's own files, for those who work on opsctl; else the user's.

    Raises OpsctlError (its options are declared in a way that opsctl does not know), Refused
    (opsctl has its own catalogue of this version, and this package is another).
    """
    try:
        table = entries(read(package), _known(version))
    except (Unreadable, UnknownType, SyntaxError, UnicodeDecodeError) as error:
        raise OpsctlError(
            f"the options of SGLang {version} cannot be read: {error}",
            hint="this release declares them in a way that is new to opsctl: update opsctl",
        ) from error
    files = _own_files(version, table) if own else _user_files(version, table)
    before = next((v for v in reversed(store.where()) if age(v) < age(version)), None)
    was = set(store.table(before)) if before else set()
    return Added(
        version,
        len(table),
        files,
        before,
        tuple(sorted(table.keys() - was)) if before else (),
        tuple(sorted(was - table.keys())),
    )


def _known(version: str) -> dict[str, str]:
    """Names → canonical names, of the newest version that has each. The version itself counts
    most: its names may stand in descriptions."""
    found: dict[str, str] = {}
    for one in (*(v for v in store.where() if v == version), *reversed(store.where())):
        for name, canonical in store.names(one).items():
            found.setdefault(name, canonical)
    return found


def _own_files(version: str, table: store.Table) -> dict[Path, str]:
    folder = Path(str(store.own()))
    return _changed({folder / f"{v}.json": t for v, t in store.own_texts(version, table).items()})


def _user_files(version: str, table: store.Table) -> dict[Path, str]:
    if not store.own().joinpath(f"{version}.json").is_file():
        return _changed({store.added() / f"{version}.json": store.text(version, table)})
    differ = _differing(store.table(version), table)
    if differ:
        raise Refused(
            f"opsctl has its own catalogue of SGLang {version}, and this package differs in "
            f"{len(differ)} flags: {', '.join(differ[:5])}",
            hint=f"give a build of your own a name of its own: opsctl catalog add {version}+mine "
            "--from PATH",
        )
    return {}


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return sorted(n for n in {*one, *other} if one.get(n) != other.get(n))


def _changed(texts: Mapping[Path, str]) -> dict[Path, str]:
    return {
        path: text
        for path, text in texts.items()
        if not path.is_file() or path.read_bytes() != text.encode()
    }
