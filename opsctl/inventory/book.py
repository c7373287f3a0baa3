"""The cached address book: `status` must not wait for Ansible each time.

Holds no secret: addresses and names of services only. Valid while every file that the inventory
was read from is the same (name, size, mtime in ns). Not kept for inventories that may answer
differently without any change of a file, nor where a connection needs a password.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import opsctl
from opsctl.inventory import typed
from opsctl.inventory.locate import ansible_cfg, setting
from opsctl.inventory.model import Book, BookEntry
from opsctl.inventory.reader import as_far, book_of
from opsctl.paths import share

# An inventory folder with more files than this is not an inventory (a home directory?).
MOST_FILES = 2000

_SECRET = re.compile(r"pass(word|wd|phrase)?($|_)|secret|token|private_key$", re.IGNORECASE)
_LIVE = re.compile(rb"^plugin\s*:|\b(lookup|query|q)\s*\(", re.MULTILINE)


def book(path: Path, *, cache: bool = True, environ: Mapping[str, str] = os.environ) -> Book:
    """The address book of an inventory. Raises OpsctlError if Ansible cannot read it."""
    before = fingerprint(path, environ) if cache and not typed.given() else None
    kept = _file(path, environ)
    if before is not None and (known := _load(kept, before)) is not None:
        return Book(path, known)
    fresh = book_of(path, as_far(path))
    if before is not None and cacheable(fresh):
        _save(kept, before, fresh)
    else:
        kept.unlink(missing_ok=True)
    return fresh


def cacheable(fresh: Book) -> bool:
    """Whether the book holds nothing secret, and all that it is to hold. Looks at names, and for
    sshpass in arguments."""
    return not any(entry.unread for entry in fresh.hosts.values()) and not any(
        _SECRET.search(key) or "sshpass" in str(value)
        for entry in fresh.hosts.values()
        for key, value in entry.connection.items()
        if value not in (None, "")
    )


def fingerprint(path: Path, environ: Mapping[str, str]) -> list[list[Any]] | None:
    """Name, size and mtime of every file that counts; None if files do not tell the whole."""
    found: list[list[Any]] = []
    for file in _watched(path, environ):
        try:
            stat = file.stat()
        except OSError:
            continue  # a file that is not there yet: it will be, and then the list differs
        if len(found) >= MOST_FILES or _live(path, file, stat.st_mode):
            return None
        found.append([str(file), stat.st_size, stat.st_mtime_ns])
    return sorted(found)


def _watched(path: Path, environ: Mapping[str, str]) -> list[Path]:
    roots = (
        [path] if path.is_dir() else [path, path.parent / "group_vars", path.parent / "host_vars"]
    )
    playbooks = share() / "playbooks"
    roots += [playbooks / "group_vars", playbooks / "host_vars", playbooks / "read.yml"]
    files = [f for root in roots for f in _files(root)]
    config = ansible_cfg(environ)
    vaults = [environ.get("ANSIBLE_VAULT_PASSWORD_FILE", "")]
    if config is not None:
        files.append(config)
        vaults += [
            str(config.parent / Path(part.strip().rpartition("@")[2]).expanduser())
            for key in ("vault_password_file", "vault_identity_list")
            for part in setting(config, key).split(",")
            if part.strip()
        ]
    return files + [Path(v) for v in vaults if v]


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        return [root]
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [Path(folder) / name for name in names]
        if len(found) > MOST_FILES:
            break
    return found


def _live(path: Path, file: Path, mode: int) -> bool:
    """A script, a plugin's settings, or a template that looks elsewhere."""
    if file != path and path not in file.parents and path.parent not in file.parents:
        return False
    try:
        return bool(mode & 0o111) or bool(_LIVE.search(file.read_bytes()))
    except OSError:
        return True


def _file(path: Path, environ: Mapping[str, str]) -> Path:
    """~/.cache/opsctl/inventory-HASH.json; Ansible's own variables are part of the hash."""
    named = sorted(f"{k}={v}" for k, v in environ.items() if k.startswith("ANSIBLE_"))
    key = "\0".join([opsctl.__version__, str(path.absolute()), str(Path.cwd()), *named])
    home = environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return Path(home) / "opsctl" / f"inventory-{digest}.json"


def _load(kept: Path, before: list[list[Any]]) -> dict[str, BookEntry] | None:
    """None if there is no cache, an old one, or one that is not ours to trust."""
    try:
        stat = kept.stat()
        held = json.loads(kept.read_bytes())
        if stat.st_uid != os.geteuid() or stat.st_mode & 0o077 or held["files"] != before:
            return None
        return {
            name: BookEntry(
                name, said["connection"], tuple(said["groups"]), tuple(said["services"])
            )
            for name, said in held["hosts"].items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(kept: Path, before: list[list[Any]], fresh: Book) -> None:
    hosts = {
        name: {"connection": e.connection, "groups": e.groups, "services": e.services}
        for name, e in fresh.hosts.items()
    }
    part = kept.with_suffix(f".{os.getpid()}")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"files": before, "hosts": hosts}, file)
        part.replace(kept)
    except OSError:
        part.unlink(missing_ok=True)  # a cache that cannot be written costs time, nothing else
