"""The program of the role `engine`: what it builds, what it leaves alone, what it refuses."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.target import engine
from opsctl.ansible.target.engine import is_version, main

REQUIREMENTS = "sglang==0.5.9 --hash=sha256:00\n"


def args(root: Path, do: str = "look", **changes: Any) -> dict[str, Any]:
    text = changes.pop("requirements", REQUIREMENTS)
    digest = hashlib.sha256(text.encode()).hexdigest()
    install = {"python": sys.executable, "digest": digest, "requirements": text}
    base = {
        "root": str(root),
        "version": "0.5.9",
        "install": install | {"wheels": None, "index": None},
        "wheels_wanted": {},
        "do": do,
        "check": False,
    }
    return base | changes


def environment(folder: Path, version: str) -> None:
    """An environment whose Python says that it holds this version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(f"#!/bin/sh\necho {version}\n")
    (folder / "bin" / "python").chmod(0o755)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Installations, without pip."""
    made: list[Path] = []

    def install(folder: Path, _: Any) -> None:
        made.append(folder)
        environment(folder, "0.5.9")

    monkeypatch.setattr(engine, "_install", install)
    return made


def test_built_once_and_put_in_place(tmp_path: Path, built: list[Path]) -> None:
    root = tmp_path / "sglang" / "0.5.9"
    foretold = main(args(root, check=True))
    assert (foretold["state"], foretold["changed"], root.exists()) == ("build", True, False)
    done = main(args(root, "build"))
    assert done["diff"] == foretold["diff"]
    assert root.is_symlink() and (root / "bin" / "python").exists()
    again = main(args(root))
    assert (again["state"], again["changed"]) == ("ready", False)
    assert len(built) == 1


def test_a_torn_build_is_made_anew(tmp_path: Path, built: list[Path]) -> None:
    root = tmp_path / "0.5.9"
    digest = hashlib.sha256(REQUIREMENTS.encode()).hexdigest()
    torn = tmp_path / ".builds" / f"0.5.9-{digest[:12]}"
    torn.mkdir(parents=True)
    (torn / "half").touch()
    main(args(root, "build"))
    assert not (torn / "half").exists()


def test_other_requirements_are_built_beside_and_then_exchanged(
    tmp_path: Path, built: list[Path]
) -> None:
    root = tmp_path / "0.5.9"
    main(args(root, "build"))
    first = root.resolve()
    other = args(root, "build", requirements=REQUIREMENTS + "# newer\n")
    assert main(other | {"do": "look"})["state"] == "build"
    main(other)
    assert root.resolve() != first and first.exists()


def test_an_environment_in_use_is_not_exchanged(tmp_path: Path, built: list[Path]) -> None:
    root = tmp_path / "0.5.9"
    main(args(root, "build"))
    (root / "bin" / "sleep").symlink_to("/bin/sleep")
    running = subprocess.Popen([str(root / "bin" / "sleep"), "60"])
    try:
        while not Path(f"/proc/{running.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # exec is not over when Popen returns
        answer = main(args(root, requirements=REQUIREMENTS + "# newer\n"))
    finally:
        running.kill()
        running.wait()
    assert f"process {running.pid} runs from it" in answer["problems"][0]
    assert "another engine.root" in answer["problems"][0]


def test_what_others_made_is_never_replaced(tmp_path: Path, built: list[Path]) -> None:
    environment(tmp_path / "0.5.9", "0.5.9")
    assert "not made by opsctl" in main(args(tmp_path / "0.5.9"))["problems"][0]
    assert not built


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.5.9", ""),
        ("0.5.9+cu130", ""),
        ("0.5.10", "holds SGLang 0.5.10, the description asks for 0.5.9"),
        ("", "holds no SGLang, the description asks for 0.5.9"),
        (None, "bin/python is missing"),
    ],
)
def test_without_install_it_is_only_looked_at(tmp_path: Path, version: Any, said: str) -> None:
    root = tmp_path / "env"
    if version is not None:
        environment(root, version)
    answer = main(args(root, install=None))
    found = "\n".join(answer["problems"])
    assert said in found if said else not found
    assert not answer["changed"]


def test_missing_wheels_are_told_by_name_and_size(tmp_path: Path) -> None:
    (tmp_path / ".wheels").mkdir()
    (tmp_path / ".wheels" / "a.whl").write_bytes(b"12")
    (tmp_path / ".wheels" / "b.whl").write_bytes(b"1")
    wanted = {"a.whl": 2, "b.whl": 2, "c.whl": 2}
    assert main(args(tmp_path / "0.5.9", wheels_wanted=wanted))["missing"] == ["b.whl", "c.whl"]


def test_pip_refuses_a_package_of_another_hash(tmp_path: Path) -> None:
    """The real pip: nothing is put in place, and its words are told."""
    from opsctl.rehearsal import wheel

    made = wheel.build("0.5.9", tmp_path / "mirror")
    text = f"sglang==0.5.9+rehearsal --hash=sha256:{'0' * 64}\n"
    asked = args(tmp_path / "0.5.9", "build", requirements=text)
    asked["install"]["wheels"] = str(made.path.parent)
    answer = main(asked)
    assert "DO NOT MATCH THE HASHES" in answer["problems"][0]
    assert not (tmp_path / "0.5.9").exists()


def test_an_index_stands_in_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], env: Any = None) -> str:
        calls.append((list(command), env or {}))
        (tmp_path / "env").mkdir(exist_ok=True)
        return ""

    monkeypatch.setattr(engine, "run", run)
    asked = args(tmp_path / "0.5.9")["install"] | {"index": "https://u:CANARY@index/"}
    engine._install(tmp_path / "env", asked)
    assert not any("CANARY" in word for command, _ in calls for word in command)
    assert calls[-1][1] == {"PIP_INDEX_URL": "https://u:CANARY@index/"}
    assert "--require-hashes" in calls[-1][0]


def test_versions() -> None:
    assert is_version("0.5.9+cu130", "0.5.9")
    assert is_version("0.5.9+cu130", "0.5.9+cu130")
    assert not is_version("0.5.9", "0.5.9+cu130")
    assert not is_version("0.5.90", "0.5.9")
    assert not is_version(None, "0.5.9")
