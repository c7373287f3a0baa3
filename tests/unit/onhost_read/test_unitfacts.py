"""What `systemctl show` and the driver's own text tell, as real hosts write them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opsctl.onhost import unitfacts

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    "\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "550.54.14"), (OPEN, "580.65.06"), ("", ""), ("GCC 12", "")]
)
def test_driver(text: str, version: str) -> None:
    assert unitfacts.driver(text) == version


def test_limits() -> None:
    told = {"KillMode": "mixed", "LimitNOFILE": "1048576", "LimitMEMLOCK": "infinity"}
    assert unitfacts.of(told) == {"kill_mode": "mixed", "nofile": 1048576, "memlock": -1}
    assert unitfacts.of({}) == {"kill_mode": None, "nofile": None, "memlock": None}


def test_shared_memory(tmp_path: Path) -> None:
    size = unitfacts.shm(str(tmp_path))
    assert size is not None and size == shutil.disk_usage(tmp_path).total
    assert unitfacts.shm(str(tmp_path / "none")) is None
