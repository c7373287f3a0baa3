"""A file on its way: what is there of it, its hash so far, and how it goes on after any end.

Bytes and record stand in the state folder of the .part folder; the file itself appears in its
place, by rename, when it is whole and right.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Dict, Optional

from opsctl.onhost.files import read_json, write_json

CHUNK = 1 << 18
# A power cut loses what was not synced; syncing more often costs more than it saves.
SYNCED_EVERY = 256 << 20


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def hasher(hashed: Optional[str], size: Optional[int]) -> Any:
    """git hashes a header before the content; what has no hash is still given one, for later."""
    if hashed and hashed.startswith("git:"):
        return hashlib.sha1(b"blob %d\0" % (size or 0), usedforsecurity=False)
    return hashlib.sha256()


def named(hashed: Optional[str], digest: str) -> str:
    return f"{'git' if hashed and hashed.startswith('git:') else 'sha256'}:{digest}"


class Partial:
    """Opened where it ended. After a kill all that was written is there; after another boot only
    what was synced is trusted. The present bytes are hashed again, from the disk."""

    def __init__(self, folder: Path, file: Dict[str, Any], boot: str) -> None:
        self.wanted = {"path": file["path"], "size": file["size"], "hash": file["hash"]}
        name = hashlib.sha256(file["path"].encode()).hexdigest()[:24]
        self.path, self._record = folder / f"{name}.partial", folder / f"{name}.json"
        self._boot = boot
        self.have = self._synced = 0
        self.etag = ""
        self._file = os.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.resumed = self._resume()

    def _resume(self) -> int:
        record = read_json(self._record) or {}
        self._hash = hasher(self.wanted["hash"], self.wanted["size"])
        if any(record.get(key) != value for key, value in self.wanted.items()):
            self.restart()
            return 0
        self.etag = record.get("etag", "")
        there = os.fstat(self._file).st_size
        trusted = there if record.get("boot") == self._boot else min(there, record["synced"])
        if self.wanted["size"] is not None and trusted > self.wanted["size"]:
            trusted = 0
        os.ftruncate(self._file, trusted)
        while self.have < trusted:
            chunk = os.pread(self._file, min(CHUNK, trusted - self.have), self.have)
            if not chunk:
                break
            self._hash.update(chunk)
            self.have += len(chunk)
        self.sync()
        return self.have

    def restart(self, etag: str = "") -> None:
        """From the first byte, of what the server now calls `etag`."""
        os.ftruncate(self._file, 0)
        self.have = self._synced = 0
        self.etag = etag
        self._hash = hasher(self.wanted["hash"], self.wanted["size"])
        self._write_record()

    def write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        at = self.have
        while view:
            done = os.pwrite(self._file, view, at)
            at, view = at + done, view[done:]
        self._hash.update(chunk)
        self.have = at
        if self.have - self._synced >= SYNCED_EVERY:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file)
        self._synced = self.have
        self._write_record()

    def _write_record(self) -> None:
        told = {"etag": self.etag, "synced": self._synced, "boot": self._boot}
        write_json(self._record, {**self.wanted, **told})

    def digest(self) -> str:
        return named(self.wanted["hash"], self._hash.hexdigest())

    def finish(self, target: Path, keep_cached: bool) -> None:
        """Into its place. What was written is let go of: the page cache holds what engines read."""
        self.sync()
        if not keep_cached:
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(str(self.path), str(target))
        self._record.unlink()

    def close(self) -> None:
        os.close(self._file)
