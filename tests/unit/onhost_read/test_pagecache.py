"""The share of a model in the page cache, by sampling."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsctl.onhost import pagecache


def test_looks_are_spread_evenly_over_all_files() -> None:
    files = [(Path("a"), 300 << 20), (Path("b"), 100 << 20)]
    found = dict(pagecache.spread(files, 400 << 20))
    counts = {path.name: len(offsets) for path, offsets in found.items()}
    assert sum(counts.values()) == pagecache.WINDOWS
    assert counts["a"] == pytest.approx(3 * counts["b"], abs=2)
    assert all(offset % pagecache.PAGE == 0 for offsets in found.values() for offset in offsets)


def test_a_small_file_is_looked_at_once() -> None:
    assert pagecache.spread([(Path("a"), 5)], 5) == [(Path("a"), [0])]
    assert pagecache.share([]) is None
    assert pagecache.share([(Path("/gone"), 5)]) is None


def test_half_of_a_file_that_was_read(tmp_path: Path) -> None:
    """A sparse file has no page in memory until it is read."""
    path, size = tmp_path / "model.safetensors", 64 << 20
    with path.open("wb") as file:
        file.truncate(size)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if pagecache.share([(path, size)]) != 0.0:
        pytest.skip("the files of this file system are always in memory")
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        left = size // 2
        while left > 0:
            left -= len(file.read(1 << 20))
    assert pagecache.share([(path, size)]) == pytest.approx(0.5, abs=0.05)
