"""How much of a model's files is in the page cache: a sample, since a model has 10^8 pages."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

PAGE = mmap.PAGESIZE
WINDOW = 16 * PAGE
WINDOWS = 192  # looks in all; the error of a share of one half is then about 4 %


def share(files: Sequence[Tuple[Path, int]]) -> Optional[float]:
    """Share of the bytes of `files` (path, size) that is cached, 0 to 1; None if there are no
    files, or the kernel does not tell."""
    total = sum(size for _, size in files)
    if total <= 0:
        return None
    seen = resident = 0
    for path, offsets in spread(files, total):
        with suppress(OSError, ValueError, AttributeError), open(path, "rb") as file:
            for offset in offsets:
                pages, there = _look(file.fileno(), offset)
                seen, resident = seen + pages, resident + there
    return round(resident / seen, 3) if seen else None


def spread(files: Sequence[Tuple[Path, int]], total: int) -> List[Tuple[Path, List[int]]]:
    """Where to look: offsets at even distances over all files as if they were one."""
    step = max(total // WINDOWS, WINDOW)
    found, position, following = [], 0, step // 2
    for path, size in files:
        offsets = []
        while following < position + size:
            offsets.append((following - position) // PAGE * PAGE)
            following += step
        position += size
        if offsets:
            found.append((path, offsets))
    if not found:  # smaller than half a window: its first page tells
        found = [(path, [0]) for path, size in files if size]
    return found


def _look(descriptor: int, offset: int) -> Tuple[int, int]:
    """Pages looked at, and those of them in memory. Nothing is read: the mapping is not touched.

    A private writable mapping, since only of a writable one does Python tell the address.
    """
    length = min(WINDOW, os.fstat(descriptor).st_size - offset)
    if length <= 0:
        return 0, 0
    pages = -(-length // PAGE)
    vector = (ctypes.c_ubyte * pages)()
    with mmap.mmap(
        descriptor,
        length,
        flags=mmap.MAP_PRIVATE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
        offset=offset,
    ) as mapped:
        begin = ctypes.c_char.from_buffer(mapped)
        try:
            address = ctypes.addressof(begin)
            failed = _libc().mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), vector)
        finally:
            del begin  # or the mapping could not be closed
    if failed:
        return 0, 0
    return pages, sum(byte & 1 for byte in vector)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
