"""What the shell offers for names of flags and their values. Must be quick: no inventory is read,
nothing heavy is imported; a description is only looked through for its version."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer  # typer evaluates the annotations of completers

FIT = ("hicache-ratio", "hicache-size", "mem-fraction-static", "context-length")
# Keys of a description that --set takes beside flags.
KEYS = ("engine.version", "memory.min_available", "model.path", "timing.cap", "gates.soak")
_VERSION = re.compile(r"""^\s+version:\s*["']?([0-9][0-9A-Za-z.+]*)""", re.MULTILINE)
_LONGEST = 1 << 20  # bytes of a description that is looked through


def versions(incomplete: str) -> list[str]:
    from opsctl.engine import store

    return [one for one in reversed(store.where()) if one.startswith(incomplete)]


def flags(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the release that --version names, else of the newest."""
    return _starting(_names(str(ctx.params.get("version") or "")), incomplete)


def fits(incomplete: str) -> list[str]:
    return _starting(FIT, incomplete)


def sets(ctx: typer.Context, incomplete: str) -> list[str]:
    """NAME= of the service's flags; after it, the values that the flag takes."""
    version = _described(ctx)
    if apart := os.environ.get("_OPSCTL_COMPLETED_KEY"):
        return [one for one in _values(apart, version) if one.startswith(incomplete)]
    name, equals, value = incomplete.partition("=")
    if equals:
        return [f"{name}={one}" for one in _values(name, version) if one.startswith(value)]
    return [f"{one}=" for one in _starting((*_names(version), *KEYS), incomplete)]


def _names(version: str) -> Iterable[str]:
    from opsctl.engine import store

    known = store.where()
    return store.table(version if version in known else list(known)[-1])


def _values(name: str, version: str) -> Sequence[str]:
    from opsctl.engine import store

    if name == "engine.version":
        return versions("")
    known = list(store.where())
    chosen = version if version in known else known[-1]
    entry = store.table(chosen).get(store.names(chosen).get(name, ""), {})
    if entry.get("kind") in ("switch", "onoff"):
        return ("true", "false")
    return [str(one) for one in entry.get("choices", ())]


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
