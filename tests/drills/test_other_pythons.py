"""The unit and property tests on every other Python that we support, from the lock file.

Needs a package index, and that Python on the PATH; one that is not there is told and counted.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.drill, pytest.mark.timeout(1800)]

TOP = Path(__file__).resolve().parent.parent.parent


def interpreter(version: str) -> str:
    """A python of that version that really starts; "" if there is none."""
    found = shutil.which(f"python{version}")
    asked = [found or "", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    if not found:
        return ""
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found if done.stdout.strip() == version else ""


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_unit_and_property_tests(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if not python:
        pytest.skip(f"NOT PROVEN HERE: python{version} is not on this machine")
    subprocess.run([python, "-m", "venv", str(tmp_path)], check=True, timeout=120)
    own = str(tmp_path / "bin" / "python")
    pip = [own, "-m", "pip", "install", "--quiet"]
    lock = ["--require-hashes", "--requirement", str(TOP / "requirements.lock")]
    subprocess.run([*pip, *lock], check=True, timeout=600)
    subprocess.run([*pip, "--no-deps", "--editable", str(TOP)], check=True, timeout=300)
    done = subprocess.run(
        [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit", "tests/property"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    print(done.stdout[-300:])
    assert done.returncode == 0, done.stdout[-6000:]
