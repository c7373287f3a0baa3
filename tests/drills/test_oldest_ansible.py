"""The reader and the playbooks on the oldest ansible-core that we support.

An environment of its own, in which that version comes before the one of this environment; needs a
package index.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = [pytest.mark.drill, pytest.mark.lab, pytest.mark.timeout(1800)]

OLDEST = "2.18"
TOP = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oldest")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", f"ansible-core=={OLDEST}.*"]
    subprocess.run(pip, check=True, timeout=600)
    asked = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    own = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True)
    # Behind the environment's own packages, so that only what it lacks is found there.
    others = f"{sysconfig.get_paths()['purelib']}\n{TOP}\n"
    (Path(own.stdout.strip()) / "zz-others.pth").write_text(others)
    script = python.with_name("opsctl")
    script.write_text(f"#!{python}\nfrom opsctl.cli.entry import run\nrun()\n")
    script.chmod(0o755)
    return python


def test_the_oldest_ansible_is_what_runs(python: Path) -> None:
    said = subprocess.run(
        [str(python.with_name("ansible-playbook")), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"[core {OLDEST}." in said.stdout


@pytest.mark.parametrize("tests", ["tests/unit/ansible", "tests/lab/test_playbooks.py"])
def test_all_passes_there(python: Path, tests: str) -> None:
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TOP / tests)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
