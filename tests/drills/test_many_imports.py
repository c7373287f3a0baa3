"""At least 100,000 generated descriptions and commands through import, rendering and import again.

The same tests as in CI (tests/property/test_importing_anything.py), with many more examples. What
was tried, and for how long, stands in docs/drills.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = [pytest.mark.drill, pytest.mark.timeout(4 * 3600)]

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "drills.md"
OF_EACH = 35_000  # commands, units, containers; a third of it of other texts
MARK = "many-imports"


TESTS = ("commands", "units", "containers", "garbage", "no_secret_is_told")


def test_a_hundred_thousand(tmp_path: Path) -> None:
    begun = time.monotonic()
    seed = int(os.environ.get("OPSCTL_SEED") or time.time())
    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(len(TESTS)) as pool:
        for found in pool.map(lambda name: _one(name, seed, tmp_path / name), TESTS):
            seen += found
    assert seen["texts"] >= 100_000, seen
    assert seen["fixed points"] > seen["texts"] * 0.6, seen
    _write(seen, seed, time.monotonic() - begun)


def _one(name: str, seed: int, counts: Path) -> Counter[str]:
    """One of the tests, in a process of its own beside the others."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "14000", f"--hypothesis-seed={seed}",
         "-p", "no:cacheprovider", f"tests/property/test_importing_anything.py::test_{name}"],
        cwd=TOP,
        env={**os.environ, "OPSCTL_EXAMPLES": str(OF_EACH), "OPSCTL_COUNTS": str(counts)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20000:]
    return Counter(json.loads(counts.read_text()))


def _write(seen: Mapping[str, int], seed: int, seconds: float) -> None:
    text = PAGE.read_text()
    start, end = f"<!-- {MARK}: generated -->\n", f"<!-- /{MARK} -->\n"
    told = (
        "## A hundred thousand imports\n\nWritten by `make drills`: descriptions of four versions, "
        "spelled as commands, units and\ncontainers, imported, rendered and imported again; no "
        "process was started.\n\n| what | texts |\n|---|---|\n"
        f"| commands, units and containers | {seen['texts']:,} |\n"
        f"| … described, equal to what they were made of, and a fixed point | "
        f"{seen['fixed points']:,} |\n"
        f"| … refused, as opsctl refuses that description itself | "
        f"{seen['texts'] - seen['fixed points']:,} |\n"
        f"| texts of anything: an answer, no exception | {seen['garbage']:,} |\n"
        f"| texts with a secret: told nowhere | {seen['with a secret']:,} |\n"
        f"| seconds, on two cores that others used too | {seconds:,.0f} |\n"
        f"| seed (OPSCTL_SEED tries the same again) | {seed} |\n"
    )
    before, found, after = text.partition(start)
    rest = after.partition(end)[2] if found else ""
    head = before if found else text.rstrip() + "\n\n"
    PAGE.write_text(f"{head}{start}{told}{end}{rest}")
