"""An installed wheel, away from any checkout, is a working tool."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
SHARED = ("playbooks", "roles", "templates", "inventory", "tests/postdeploy")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(TOP)], check=True, timeout=300)
    (found,) = folder.glob("opsctl-*.whl")
    return found


def tracked(folder: str) -> set[str]:
    """Files that git knows there; links count as what they lead to, which is listed itself."""
    git = ["git", "ls-files", "--stage", folder]
    done = subprocess.run(git, cwd=TOP, check=True, capture_output=True, text=True)
    rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    return {path for mode, _, _, path in rows if mode != "120000"}


def test_the_wheel_holds_every_file_that_the_tool_needs(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"opsctl/_share/{name}" for folder in SHARED for name in tracked(folder)}
    wanted |= tracked("opsctl")
    assert len(wanted) > 150, "git lists too few files: this test would prove nothing"
    assert wanted - there == set()


def test_an_installed_wheel_renders_its_own_example(wheel: Path, tmp_path: Path) -> None:
    """With the checkout off the path: the wheel's own inventory, reader play and template."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True, timeout=300)
    code = (
        "import opsctl.paths, sys; print(opsctl.paths.share());"
        "from opsctl.cli.main import main; sys.argv[0] = 'opsctl'; main()"
    )
    example = site / "opsctl" / "_share" / "inventory" / "example"
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", code, "render", "-i", str(example), "--out", str(out)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(site / "opsctl" / "_share") in done.stdout
    units = list(out.rglob("sglang-kimi.service"))
    assert units and "--hicache-ratio" in units[0].read_text()
