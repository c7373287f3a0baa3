"""The lab tests of preparing, deploying and examining, on hosts of another distribution.

Debian 13 is built from this machine's own apt sources. OPSCTL_SYSTEMS names a folder of others,
SUITE.sources each; every one of them is built (once) and run. Ubuntu's needs its key (Signed-By)
and, since its base has none, apt itself (LAB_EXTRA). The stand-in engine needs Python 3.11: where
a suite's is older, whole deployments are left out. The real dnf has a lab of its own.
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
FOLDER = os.environ.get("OPSCTL_SYSTEMS", "")
OTHERS = {p.stem: p for p in Path(FOLDER).glob("*.sources")} if FOLDER else {}
SUITES = sorted({"trixie", *OTHERS})
PREPARING = ["lab/test_driver_roles.py", "lab/test_doctor_host.py"]
DEPLOYING = ["lab/test_playbooks.py", "lab/test_model_role.py"]
FETCHES = "not whole_deployment"  # of test_model_role, what needs no engine
DNF = "dnf,dnf-plugins-core,rpm"


def lab(name: str, **more: str) -> dict[str, str]:
    """A lab of its own, whose base stays for the next run."""
    return {**os.environ, "LAB_DIR": f"{shell.folder()}-{name}", **more}


def other(suite: str) -> dict[str, str]:
    given = {"LAB_APT": str(OTHERS[suite])} if suite in OTHERS else {}
    return lab(suite, LAB_SUITE=suite, LAB_EXTRA="apt", **given)


def build(env: dict[str, str]) -> None:
    script = ["bash", str(shell.SCRIPT), "build"]
    subprocess.run(script, env=env, stdin=subprocess.DEVNULL, check=True, timeout=900)


def pytested(env: dict[str, str], tests: list[str], *more: str) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
    words += [f"tests/{name}" for name in tests]
    done = subprocess.run(
        words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("suite", SUITES)
def test_prepared_examined_and_deployed(suite: str) -> None:
    env = other(suite)
    build(env)
    python = Path(env["LAB_DIR"], "base", "usr/bin/python3").readlink().name
    minor = int(re.fullmatch(r"python3\.(\d+)", python)[1])  # type: ignore[index]
    told = pytested(env, PREPARING)
    if minor >= 11:
        told += pytested(env, DEPLOYING)
    else:
        told += pytested(env, DEPLOYING[1:], "-k", FETCHES)
    print(suite, python, re.findall(r"\d+ passed", told))


def test_the_real_dnf() -> None:
    env = lab("dnf", LAB_EXTRA=DNF)
    build(env)
    print(pytested(env, ["drills/test_dnf_host.py"], "-m", "drill"))
