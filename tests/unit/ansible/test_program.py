"""Programs go through stdin into a host's Python: also into the oldest one that we support."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsctl.ansible import program
from opsctl.errors import OpsctlError
from opsctl.remote.host import Answer

OLDEST = "python3.9"


class ThisMachine:
    """A host that is this machine's Python, cut off from this environment's packages."""

    name = "here"

    def __init__(self, python: str) -> None:
        self.target = SimpleNamespace(python=python)

    def run(self, argv: Any, *, stdin: bytes = b"", timeout: float = 60, **_: Any) -> Answer:
        argv = [argv[0], "-I", "-S", *argv[1:]]
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout, check=False)
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def pythons() -> list[str]:
    roots = [*_pyenv(), *os.environ.get("PATH", "").split(os.pathsep)]
    oldest = shutil.which(OLDEST, path=os.pathsep.join(roots))
    return [sys.executable, *([oldest] if oldest else [])]


def _pyenv() -> list[str]:
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    return [str(p / "bin") for p in versions.glob("3.9*")]


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize(
    "name", ["model", "host", "nvidia_driver", "engine", "cuda", "host_tuning", "survey"]
)
def test_runs_without_any_package(python: str, name: str, tmp_path: Path) -> None:
    args: dict[str, dict[str, Any]] = {
        "model": {"folders": [{"path": str(tmp_path), "size": None, "what": "model"}]},
        "host": {
            "users": ["root"],
            "folders": {str(tmp_path / "new"): "0750"},
            "nofile": 1024,
            "journal_max_use": "1G",
            "check": True,
        },
        "engine": {
            "root": str(tmp_path / "0.5.9"),
            "version": "0.5.9",
            "install": None,
            "wheels_wanted": {},
            "do": "look",
            "check": True,
        },
    }
    args["cuda"] = {}
    args["nvidia_driver"] = {"branch": "", "check": True}
    args["host_tuning"] = {"settings": {}, "check": True}
    args["survey"] = {**args, "engine": [args["engine"]]}
    found = program.run(ThisMachine(python), name, args[name])  # type: ignore[arg-type]
    if name == "survey":
        assert list(found) == [*("host", "nvidia_driver", "host_tuning", "engine", "model", "cuda")]
        assert (found["host"]["changed"], len(found["engine"][0]["problems"])) == (True, 1)
        assert not (tmp_path / "new").exists()
    elif name == "cuda":
        assert set(found) == {"gpus", "driver", "cuda", "gpu_error", "toolkit"}
    elif name in ("nvidia_driver", "host_tuning"):
        assert (found["changed"], found["problems"]) == (False, [])  # nothing was asked for
    elif name == "host":
        assert found["changed"]
        assert not (tmp_path / "new").exists()  # with check nothing is written
        assert {"before_header", "after_header", "before", "after"} == set(found["diff"][0])
    else:
        assert found["problems"]


def test_a_program_that_dies_is_told(tmp_path: Path) -> None:
    with pytest.raises(OpsctlError) as caught:
        program.run(ThisMachine(sys.executable), "model", {})  # type: ignore[arg-type]
    assert "KeyError: 'folders'" in caught.value.message
    assert caught.value.host == "here"
