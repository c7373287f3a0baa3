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
LAB = str(ROOT / "opsctl" / "lab" / "lab.sh")
MACHINES = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
FOLDER = os.environ.get("OPSCTL_SYSTEMS", "")
OTHERS = {p.stem: p for p in Path(FOLDER).glob("*.sources")} if FOLDER else {}
SUITES = sorted({"trixie", *OTHERS})
PREPARING = ["lab/test_driver_roles.py", "lab/test_doctor_host.py"]
DEPLOYING = ["lab/test_playbooks.py", "lab/test_model_role.py"]
FETCHES = "not whole_deployment"  # of test_model_role, what needs no engine
DNF = "dnf,dnf-plugins-core,rpm"


def sources(suite: str) -> Path:
    """Apt sources of a suite: those that are given, or this machine's with its name in them."""
    if suite in OTHERS:
        return OTHERS[suite]
    own = next(path for path in MACHINES if path.exists() and path.stat().st_size)
    written = Path(f"{shell.folder()}-{suite}", own.name)
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(re.sub(r"\bbookworm\b", suite, own.read_text()))
    return written


def lab(name: str, **more: str) -> dict[str, str]:
    """A lab of its own, whose base stays for the next run."""
    return {**os.environ, "LAB_DIR": f"{shell.folder()}-{name}", **more}


def other(suite: str) -> dict[str, str]:
    return lab(suite, LAB_SUITE=suite, LAB_APT=str(sources(suite)), LAB_EXTRA="apt")


def build(env: dict[str, str]) -> None:
    subprocess.run(
        ["bash", LAB, "build"], env=env, stdin=subprocess.DEVNULL, check=True, timeout=900
    )


def pytested(env: dict[str, str], tests: list[str], *more: str) -> str:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more]
    words += [f"tests/{name}" for name in tests]
    done = subprocess.run(
        words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    # A lab that stays up holds the name and the bridge that the next drill's hosts need.
    subprocess.run(["bash", LAB, "down"], env=env, stdin=subprocess.DEVNULL, check=True)
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
