"""The real engine for a machine without a GPU, built once by tools/cpu_engine.sh and kept."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

POOL_JUDGE = Path(__file__).with_name("pool_judge.py")
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


class PoolJudge:
    """One long-lived process with an engine in it."""

    def __init__(self, environment: Path) -> None:
        self.process = subprocess.Popen(
            [environment / "bin" / "python", POOL_JUDGE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PATH": os.defpath, "HOME": "/nonexistent"},
        )
        self.version = self._read()["version"]

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the judge has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def pool_judges() -> Iterator[Callable[[str], PoolJudge]]:
    started: list[PoolJudge] = []

    @cache
    def of(version: str) -> PoolJudge:
        started.append(PoolJudge(built(version)))
        return started[-1]

    yield of
    for judge in started:
        judge.close()
