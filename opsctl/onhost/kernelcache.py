"""The compiled kernels that a service keeps across releases: how much, how new, whose."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Mapping, Sequence, Tuple

MOST_FILES = 50_000
LONGEST = 1.0  # seconds
# Below the service's folder; the engine's caches by the variables of the unit, and HOME's own.
PARTS = ("compiled/triton", "compiled/inductor", "compiled/flashinfer", "compiled/deep_gemm",
         ".cache")  # fmt: skip


def of(folder: str, starts: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """{"path", "bytes", "files", "newest", "parts": {name: bytes}, "whole", "engine_version"}.

    `engine_version`: of the newest recorded start, since no cache says itself which version it
    is for; "" if none is recorded. `whole`: False if there was too much to count.
    """
    until = time.monotonic() + LONGEST
    parts, files, newest, whole = {}, 0, 0.0, True
    for part in PARTS:
        size, count, last, done = _sum(f"{folder}/{part}", until, MOST_FILES - files)
        files, newest, whole = files + count, max(newest, last), whole and done
        parts[part] = size
    versions = [str(start.get("engine_version") or "") for start in starts]
    return {
        "path": folder,
        "bytes": sum(parts.values()),
        "files": files,
        "newest": newest,
        "parts": parts,
        "whole": whole,
        "engine_version": versions[0] if versions else "",
    }


def _sum(folder: str, until: float, most: int) -> Tuple[int, int, float, bool]:
    """Bytes, files, time of the newest, and whether all were seen."""
    size, count, newest = 0, 0, 0.0
    for base, _, names in os.walk(folder):
        for name in names:
            if count >= most or time.monotonic() > until:
                return size, count, newest, False
            try:
                stat = os.lstat(os.path.join(base, name))
            except OSError:
                continue
            size, count, newest = size + stat.st_size, count + 1, max(newest, stat.st_mtime)
    return size, count, newest, True
