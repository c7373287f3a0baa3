"""Durable files: whatever is written here survives a power cut whole, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional


def sync_folder(folder: Path) -> None:
    """A rename is only durable once its folder is synced."""
    descriptor = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace `path` at once: a reader, or the next boot, sees the old content or the new.

    Raises OSError, which names `path`; then nothing was replaced.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(str(temporary), str(path))
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(str(temporary))
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk is told while bytes are written, without it
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any, mode: int = 0o644) -> None:
    write(path, json.dumps(value, ensure_ascii=False, sort_keys=True).encode() + b"\n", mode)


def overwrite(path: Path, content: bytes) -> None:
    """Write over the beginning of a file, for content of one size: that needs no new space."""
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)


def reserve(path: Path, size: int) -> None:
    """Keep `size` bytes of the disk, to be given back when they are needed. Raises OSError."""
    descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file for good; it may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(str(path))
        sync_folder(path.parent)


def read(path: Path) -> Optional[bytes]:
    """None if there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def changed(path: str) -> float:
    """When its content was written last, seconds since the epoch; 0.0 if it is not there."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def read_json(path: Path) -> Optional[Dict[str, Any]]:
    """None if there is no such file, or it is not a JSON object (a torn write of other hands)."""
    content = read(path)
    if content is None:
        return None
    try:
        value = json.loads(content.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def append_json(path: Path, value: Any) -> None:
    """One line, in one write, synced. A line that a power cut tore is skipped by `json_lines`."""
    line = json.dumps(value, ensure_ascii=False).encode() + b"\n"
    descriptor = os.open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_lines(content: bytes) -> List[Dict[str, Any]]:
    """The whole lines that are JSON objects; torn ones are left out."""
    found = []
    for line in content.split(b"\n"):
        try:
            value = json.loads(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def link(path: Path, target: str) -> None:
    """Point the symbolic link `path` at `target` at once."""
    if os.path.islink(str(path)) and os.readlink(str(path)) == target:
        return
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    os.symlink(target, str(temporary))
    os.replace(str(temporary), str(path))
    sync_folder(path.parent)


class Busy(Exception):
    """Another process holds the flock."""


@contextlib.contextmanager
def flock(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold `path` alone; the kernel frees it when the process ends, however it ends.

    Raises Busy after `patience` seconds.
    """
    descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    give_up = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise Busy(f"{path} is held by another process") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
