"""How the command ends where nothing of it is loaded yet, or its output goes nowhere."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from opsctl.cli import entry


def test_ctrl_c_while_it_is_imported_ends_with_130(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from opsctl.cli.entry import run\n"
        "sys.exit(run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_console_script_starts_there():
    (script,) = entry_points(group="console_scripts", name="opsctl")
    assert script.load() is entry.run


def test_the_module_is_the_same_command(tmp_path):
    command = [sys.executable, "-m", "opsctl", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout[:7]) == (0, "opsctl ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize(
    "write", ["sys.stdout.write('x')", "console.write('x')", "console.write('x' * 100_000)"]
)
def test_a_full_disk_behind_stdout_is_no_fault_of_ours(write):
    code = (
        "import sys\n"
        "from opsctl.cli import console\n"
        "from opsctl.cli.frame import Settings, ended\n"
        f"sys.exit(ended(lambda: {write}, Settings()))\n"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # what is held back fails only at the end
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: cannot write the result to stdout (/dev/full): No space left on device\n"
    )


def test_render_names_the_folder_that_cannot_be_written(cli, tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = cli("render", "--out", file / "x")
    assert done.exit_code == 1
    assert f"error: cannot write {file}" in done.stderr
    assert "Not a directory" in done.stderr
    assert "fault of opsctl" not in done.stderr
