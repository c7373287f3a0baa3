"""The real engine for a machine without a GPU, built once by tools/cpu_engine.sh and kept."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

BUILDER = Path(__file__).resolve().parents[2] / "tools" / "cpu_engine.sh"


@cache
def built(version: str) -> Path:
    """The environment of `version`. Takes about a minute where it is not there yet."""
    done = subprocess.run(
        ["bash", str(BUILDER), version],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    if done.returncode != 0:
        pytest.fail(f"{BUILDER.name} {version} failed: {done.stderr[-2000:]}")
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def cpu_engine() -> Callable[[str], Path]:
    return built
