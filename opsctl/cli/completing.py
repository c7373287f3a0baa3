"""What the shell offers for names of flags and their values. Must be quick: Ansible is not asked,
nothing heavy is imported; descriptions are only looked through for their versions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import typer  # typer evaluates the annotations of completers

FIT = ("hicache-ratio", "hicache-size", "mem-fraction-static", "context-length")
# Keys of a description that --set takes beside flags.
KEYS = ("engine.version", "memory.min_available", "model.path", "timing.cap", "gates.soak")
_VERSION = re.compile(r"""^\s+version:\s*["']?([0-9][0-9A-Za-z.+]*)""", re.MULTILINE)
_ANY_VERSION = re.compile(r"""version["']?\s*:\s*["']?([0-9][0-9A-Za-z.+]*)""")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_LONGEST = 1 << 20  # bytes of a description that is looked through
_MOST = 300  # files of an inventory that are looked through


def versions(incomplete: str) -> list[str]:
    from opsctl.engine import store

    return [one for one in reversed(store.where()) if one.startswith(incomplete)]


def flags(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the release that --version names, else of those that the inventory does."""
    return _starting(_names(_chosen(ctx, str(ctx.params.get("version") or ""))), incomplete)


def fits(incomplete: str) -> list[str]:
    return _starting(FIT, incomplete)


def sets(ctx: typer.Context, incomplete: str) -> list[str]:
    """NAME= of the service's flags; after it, the values that the flag takes."""
    chosen = _chosen(ctx, _described(ctx))
    if apart := os.environ.get("_OPSCTL_COMPLETED_KEY"):
        return [one for one in _values(apart, chosen) if one.startswith(incomplete)]
    name, equals, value = incomplete.partition("=")
    if equals:
        return [f"{name}={one}" for one in _values(name, chosen) if one.startswith(value)]
    return [f"{one}=" for one in _starting((*_names(chosen), *KEYS), incomplete)]


def _names(chosen: Sequence[str]) -> Iterable[str]:
    from opsctl.engine import store

    return dict.fromkeys(name for version in chosen for name in store.table(version))


def _values(name: str, chosen: Sequence[str]) -> Sequence[str]:
    from opsctl.engine import store

    if name == "engine.version":
        return versions("")
    found: list[str] = []
    for version in chosen:
        entry = store.table(version).get(store.names(version).get(name, ""), {})
        switch = entry.get("kind") in ("switch", "onoff")
        found += ("true", "false") if switch else map(str, entry.get("choices", ()))
    return list(dict.fromkeys(found))


def _chosen(ctx: typer.Context, version: str) -> list[str]:
    """The releases that are meant: the one that is named, else those that the inventory names,
    else the newest."""
    from opsctl.engine import store

    known = list(store.where())
    if version in known:
        return [version]
    named = _of_inventory(ctx)
    return [one for one in known if one in named] or known[-1:]


def _of_inventory(ctx: typer.Context) -> set[str]:
    """Whatever stands as a version in the inventory's files."""
    from opsctl.errors import OpsctlError
    from opsctl.inventory.locate import find

    given = next((c.params["inventory"] for c in _above(ctx) if c.params.get("inventory")), None)
    try:
        path = find(Path(given) if given else None)
    except OpsctlError:
        return set()
    found: set[str] = set()
    for file in islice(_files(path), _MOST):
        try:
            with file.open("rb") as opened:
                text = opened.read(_LONGEST).decode("utf-8", "replace")
        except OSError:
            continue
        found |= {m[1] for line in text.splitlines()
                  for m in _ANY_VERSION.finditer(_COMMENT.sub("", line))}  # fmt: skip
    return found


def _above(ctx: Any) -> Iterator[Any]:
    while ctx is not None:
        yield ctx
        ctx = ctx.parent


def _files(inventory: Path) -> Iterator[Path]:
    """The inventory's own, and those of the variables beside it."""
    if inventory.is_file():
        yield inventory
    beside = ("group_vars", "host_vars")
    folders = [inventory.parent / f for f in beside] if inventory.is_file() else [inventory]
    for folder in folders:
        for here, inner, names in os.walk(folder):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def _described(ctx: typer.Context) -> str:
    """The engine's version in the file that the command names; "" if it names none."""
    for word in ctx.args:  # while a shell completes, typer leaves arguments there
        path = Path(word)
        if path.suffix in (".yml", ".yaml", ".json") and path.is_file():
            return _version(path.read_bytes()[:_LONGEST].decode("utf-8", "replace"))
    return ""


def _version(text: str) -> str:
    """Looked for, not parsed: a YAML reader would cost more than the whole completion."""
    try:
        found = json.loads(text)
    except ValueError:
        match = _VERSION.search(text)
        return match[1] if match else ""
    entry = found if "engine" in found else next(iter(found.values()), {})
    return str((entry.get("engine") or {}).get("version") or "") if entry else ""


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    """Those that begin so; if none does, those that have it anywhere."""
    wanted = incomplete.lstrip("-").replace("_", "-")
    known = sorted(names)
    return [n for n in known if n.startswith(wanted)] or [n for n in known if wanted in n]
