"""The program of the role `engine`: what it builds, what it leaves alone, what it refuses."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.engine import filled, least_driver, wanted
from opsctl.ansible.target import engine
from opsctl.ansible.target.engine import is_version, main
from opsctl.engine.compatibility import needs
from opsctl.errors import SpecError

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
    (folder / "lib/python3.11/site-packages/torch-2.9.1.dist-info").mkdir(parents=True)


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
    given_up, other = torn.with_name("0.5.9-0123456789ab"), torn.with_name("0.5.9-x-0123456789ab")
    given_up.mkdir()
    other.mkdir()
    main(args(root, "build"))
    assert not (torn / "half").exists() and not given_up.exists() and other.exists()


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


def _other_torch(root: Path) -> None:
    info = root / "lib/python3.11/site-packages/torch-2.9.1.dist-info"
    info.rename(info.with_name("torch-2.8.0.dist-info"))


def _python_of_old(root: Path) -> None:
    (root / "bin/python").unlink()
    (root / "bin/python").symlink_to("/usr/bin/python3.99")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda root: (root / "bin/python").unlink(), "bin/python is missing or leads nowhere"),
        (_python_of_old, "bin/python is missing or leads nowhere"),
        (lambda root: (root / "bin/python").write_text("#!/bin/sh\necho\n"),
         "it holds SGLang (none), 0.5.9 was installed"),
        (lambda root: (root / "bin/python").write_text("#!/bin/sh\necho no libc; exit 127\n"),
         "its Python does not run"),
        (_other_torch, "of torch, 2.9.1 was installed and 2.8.0 is there"),
        (lambda root: shutil.rmtree(root.resolve()), ""),
    ],
)  # fmt: skip
def test_a_damaged_build_is_made_again_beside_it_though_it_is_in_use(
    tmp_path: Path, built: list[Path], harm: Any, told: str
) -> None:
    """The same requirements at the same path: what runs from it finds its files again."""
    root = tmp_path / "0.5.9"
    main(args(root, "build"))
    first = root.resolve()
    (root / "bin" / "sleep").symlink_to("/bin/sleep")
    running = subprocess.Popen([str(root / "bin" / "sleep"), "60"])
    try:
        while not Path(f"/proc/{running.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        harm(root)
        look = main(args(root, check=True))
        done = main(args(root, "build"))
    finally:
        running.kill()
        running.wait()
    assert look["state"] == "build" and not look["problems"]
    assert told in look["diff"][0]["before"] and done["diff"] == look["diff"]
    assert len(built) == 2 and not done["problems"]
    assert root.resolve() != first or not told  # what is wholly gone is made in its own place
    assert main(args(root))["state"] == "ready"
    assert [p.name for p in (tmp_path / ".builds").iterdir() if p.is_dir()] == [root.resolve().name]


def test_a_build_of_another_version_is_not_made_again_in_vain(
    tmp_path: Path, built: list[Path]
) -> None:
    main(args(tmp_path / "0.5.9", "build"))
    answer = main(args(tmp_path / "0.5.9", version="0.5.10"))
    assert "holds SGLang 0.5.9, the description asks for 0.5.10" in answer["problems"][0]


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


def test_pip_refuses_a_package_of_another_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pip: nothing is put in place, and its words are told."""
    monkeypatch.setattr(engine.shutil, "which", lambda _: None)
    from opsctl.rehearsal import wheel

    made = wheel.build("0.5.9", tmp_path / "mirror")
    text = f"sglang==0.5.9+rehearsal --hash=sha256:{'0' * 64}\n"
    asked = args(tmp_path / "0.5.9", "build", requirements=text)
    asked["install"]["wheels"] = str(made.path.parent)
    answer = main(asked)
    assert "DO NOT MATCH THE HASHES" in answer["problems"][0]
    assert not (tmp_path / "0.5.9").exists()


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_an_index_stands_in_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], env: Any = None) -> str:
        calls.append((list(command), env or {}))
        (tmp_path / "env").mkdir(exist_ok=True)
        return ""

    monkeypatch.setattr(engine, "run", run)
    monkeypatch.setattr(engine.shutil, "which", lambda _: "/bin/uv" if tool == "uv" else None)
    asked = args(tmp_path / "0.5.9")["install"] | {"index": "https://u:CANARY@index/"}
    engine._install(tmp_path / "env", asked | {"torch_index": "https://t:CANARY@torch/cu128"})
    assert not any("CANARY" in word for command, _ in calls for word in command)
    prefix = {
        "pip": ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
        "uv": ("UV_DEFAULT_INDEX", "UV_INDEX"),
    }
    assert [calls[-1][1][name] for name in prefix[tool]] == [
        "https://u:CANARY@index/",
        "https://t:CANARY@torch/cu128",
    ]
    assert "--require-hashes" in calls[-1][0] and "--no-deps" not in calls[-1][0]
    assert calls[-1][0][0].endswith("uv" if tool == "uv" else "python")


def test_uv_of_the_mirror_is_taken_by_its_hash(tmp_path: Path) -> None:
    wheel = tmp_path / "uv-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("uv-9.9.data/scripts/uv", "#!/bin/sh\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    right = f"a==1 --hash=sha256:00\nuv==9.9 \\\n    --hash=sha256:{digest}\n"
    assert engine.installer(right, str(tmp_path), tmp_path) == str(tmp_path / "uv")
    other = right.replace(digest, "0" * 64)
    assert engine.installer(other, str(tmp_path), tmp_path) != str(tmp_path / "uv")


@pytest.mark.parametrize(
    ("least", "found", "refused"),
    [("580.65.06", "570.86.15", True), ("580.65.06", "580.65.06", False),
     ("580.65.06", "", False), ("", "470.1", False), ("525.60.13", "525.60", True)],
)  # fmt: skip
def test_nothing_is_built_on_a_driver_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: str, found: str, refused: bool
) -> None:
    monkeypatch.setattr(engine, "driver", lambda: found)
    answer = main(args(tmp_path / "0.5.9", least_driver=least))
    assert bool(answer["problems"]) is refused
    if refused:
        assert (
            f"needs NVIDIA driver {least} or newer, this host has {found}" in answer["problems"][0]
        )


@pytest.mark.parametrize(
    ("version", "requirements", "driver"),
    [
        ("0.5.9", "torch==2.9.1 --hash=sha256:0\n", "525.60.13"),
        ("0.5.9", "torch==2.9.1+cu130 --hash=sha256:0\n", "580.65.06"),
        ("0.5.23", "torch==2.11.0\n", "580.65.06"),
        ("0.5.23", "torch==2.11.0+cu128\n", "525.60.13"),
        ("0.5.23", "torch==2.11.0+cpu\n", ""),
        ("9.9.9", "torch==2.9.1\n", ""),
    ],
)
def test_the_driver_that_a_torch_needs(version: str, requirements: str, driver: str) -> None:
    if version == "0.5.9" and "+" not in requirements:
        driver = str(needs(version)["driver"])  # the kernel package may ask for more than torch
    assert least_driver(version, requirements) == driver


def test_an_index_of_torch_by_the_releases_cuda() -> None:
    assert filled("https://mirror/whl/{cuda}", "0.5.9") == "https://mirror/whl/cu128"
    assert filled("https://mirror/whl/{cuda}", "0.5.23") == "https://mirror/whl/cu130"
    assert filled("https://mirror/simple", "9.9.9") == "https://mirror/simple"
    assert filled(None, "0.5.9") is None
    with pytest.raises(SpecError, match="it is not known which CUDA"):
        filled("https://mirror/whl/{cuda}", "9.9.9")


def test_of_a_mirror_only_what_is_named_is_sent() -> None:
    names = ["a_b-1.0-py3-none-any.whl", "a_b-2.0-py3-none-any.whl", "c.d-3+cpu-cp311-abi3-x.whl",
             "e-f-1.tar.gz", "g-1-py3-none-any.whl"]  # fmt: skip
    text = "A-b==2.0 --hash=sha256:0\nc-d[x,y]==3+cpu ; python_version > '3' \\\n --hash=sha256:0\n"
    text += "e.f==1 \\\n --hash=sha256:0\n"
    assert [p.name for p in wanted([Path(n) for n in names], text)] == names[1:4]


def test_a_torn_build_that_is_used_is_left_alone(tmp_path: Path, built: list[Path]) -> None:
    root = tmp_path / "0.5.9"
    digest = hashlib.sha256(REQUIREMENTS.encode()).hexdigest()
    torn = tmp_path / ".builds" / f"0.5.9-{digest[:12]}"
    environment(torn, "0.5.9")
    (torn / "bin" / "sleep").symlink_to("/bin/sleep")
    running = subprocess.Popen([str(torn / "bin" / "sleep"), "60"])
    try:
        while not Path(f"/proc/{running.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        answer = main(args(root, "build"))
    finally:
        running.kill()
        running.wait()
    assert f"process {running.pid} uses it" in answer["problems"][0] and not built


def test_another_runs_build_is_waited_for_and_told_if_it_does_not_end(
    tmp_path: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = tmp_path / ".builds"
    builds.mkdir()
    other = threading.Event()
    with engine.flock(builds / ".lock"):
        monkeypatch.setattr(engine, "PATIENCE", 0.1)
        answer = main(args(tmp_path / "0.5.9", "build"))
        assert "another run builds in" in answer["problems"][0] and not built
        monkeypatch.setattr(engine, "PATIENCE", 20.0)
        waiting = threading.Thread(
            target=lambda: (main(args(tmp_path / "0.5.9", "build")), other.set())
        )
        waiting.start()
        assert not other.wait(0.3)
    waiting.join(20)
    assert other.is_set() and len(built) == 1


def test_a_disk_that_fills_up_is_told_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(folder: Path, _: Any) -> None:
        environment(folder, "0.5.9")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "_install", install)
    monkeypatch.setattr(engine, "FULL", 1 << 60)
    (tmp_path / ".builds" / ".tools-1").mkdir(parents=True)  # of a run that was killed
    answer = main(args(tmp_path / "0.5.9", "build"))
    assert "No space left on device" in answer["problems"][0] and not answer["changed"]
    assert answer["problems"][0].endswith("MiB free: its disk is full")
    assert [p.name for p in (tmp_path / ".builds").iterdir()] == [".lock"]


def test_versions() -> None:
    assert is_version("0.5.9+cu130", "0.5.9")
    assert is_version("0.5.9+cu130", "0.5.9+cu130")
    assert not is_version("0.5.9", "0.5.9+cu130")
    assert not is_version("0.5.90", "0.5.9")
    assert not is_version(None, "0.5.9")
