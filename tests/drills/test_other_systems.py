"""The lab tests of preparing, deploying and examining, on hosts of another distribution.

OPSCTL_SYSTEMS names a folder of apt sources, SUITE.sources each; every one of them is built (once)
and run. Ubuntu's needs its key (Signed-By) and, since its base has none, apt itself (LAB_EXTRA).
The stand-in engine needs Python 3.11: where a suite's is older, whole deployments are left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl.lab import shell

pytestmark = [pytest.mark.drill, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = os.environ.get("OPSCTL_SYSTEMS", "")
SUITES = sorted(p.stem for p in Path(SOURCES).glob("*.sources")) if SOURCES else []
PREPARING = ["test_driver_roles.py", "test_doctor_host.py"]
DEPLOYING = ["test_playbooks.py", "test_model_role.py"]
FETCHES = "not whole_deployment"  # of test_model_role, what needs no engine


def lab(suite: str) -> dict[str, str]:
    """A lab of its own for each suite: its base stays for the next run."""
    found = {**os.environ, "LAB_DIR": f"{shell.folder()}-{suite}", "LAB_SUITE": suite}
    found |= {"LAB_APT": str(Path(SOURCES) / f"{suite}.sources"), "LAB_EXTRA": "apt"}
    return found


def pytested(suite: str, tests: list[str], *more: str) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
    words += [f"tests/lab/{name}" for name in tests]
    done = subprocess.run(
        words, cwd=ROOT, env=lab(suite), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_there_are_systems() -> None:
    assert SUITES, "name a folder of SUITE.sources in OPSCTL_SYSTEMS"


@pytest.mark.parametrize("suite", SUITES)
def test_prepared_examined_and_deployed(suite: str) -> None:
    script = ["bash", str(ROOT / "opsctl" / "lab" / "lab.sh"), "build"]
    subprocess.run(script, env=lab(suite), stdin=subprocess.DEVNULL, check=True, timeout=900)
    python = Path(lab(suite)["LAB_DIR"], "base", "usr/bin/python3").readlink().name
    minor = int(re.fullmatch(r"python3\.(\d+)", python)[1])  # type: ignore[index]
    told = pytested(suite, PREPARING)
    if minor >= 11:
        told += pytested(suite, DEPLOYING)
    else:
        told += pytested(suite, DEPLOYING[1:], "-k", FETCHES)
    print(suite, python, re.findall(r"\d+ passed", told))
