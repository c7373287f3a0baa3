"""What doctor reads of real folders: weight files that are cut off, files that are shut, and the
interpreter that the unit runs."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from opsctl.onhost.doctor import access, examine, folders, servicelook
from opsctl.onhost.doctor.fault import Found

USER = {"uid": 12345, "gids": [12345]}


def weights(path: Path, size: int = 64) -> None:
    head = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(size))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    names = [f"model-{n}.safetensors" for n in range(3)]
    for name in names:
        weights(folder / name)
    index = {"metadata": {"total_size": 3 * 64}, "weight_map": {n: n for n in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def look(path: Path, least: int | None = None) -> dict[str, Any]:
    found = servicelook.model(str(path), least)
    assert found is not None
    return found


def test_a_whole_model_is_whole(model: Path) -> None:
    found = look(model, 3 * 64)
    assert (found["cut"], found["short"], found["missing"], found["problems"]) == ([], "", [], [])


def test_files_that_are_cut_off_are_named_without_any_size_described(model: Path) -> None:
    for name in ("model-0.safetensors", "model-2.safetensors"):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(whole[:-1])
    (model / "consolidated.safetensors").write_bytes(b"half of what nothing reads")
    cut = look(model)["cut"]
    assert [text.split()[0] for text in cut] == ["model-0.safetensors", "model-2.safetensors"]
    assert f"{len(whole) - 1:,} of {len(whole):,} bytes" in cut[0]


@pytest.mark.parametrize("content", [b"\xff" * 90, b"\0" * 90])
def test_where_headers_tell_nothing_the_sum_must_do(model: Path, content: bytes) -> None:
    for file in model.glob("*.safetensors"):
        file.write_bytes(content)
    assert look(model)["short"] == ""
    (model / "model-1.safetensors").write_bytes(content[:9])
    assert look(model)["short"] == (
        "weight files are 189 bytes together, the model's index names 192; "
        "the smallest is model-1.safetensors (9)"
    )


def test_an_index_that_names_the_size_before_quantising_is_no_fault(model: Path) -> None:
    index = json.loads((model / "model.safetensors.index.json").read_text())
    index["metadata"]["total_size"] = 10**12
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert look(model)["short"] == ""
    assert "model.size asks for 9,999" in look(model, 9999)["short"]


@pytest.mark.parametrize("name", ["model-1.safetensors", "config.json", "tokenizer.model"])
def test_each_file_that_the_engine_reads_must_be_open_to_its_user(model: Path, name: str) -> None:
    (model / "tokenizer.model").touch()
    (model / "notes.bak").touch(0o600)
    inside = [step for step in look(model)["access"] if step["path"].startswith(f"{model}/")]
    assert access.shut(inside, USER) == []
    (model / name).chmod(0o600)
    inside = [step for step in look(model)["access"] if step["path"].startswith(f"{model}/")]
    assert access.shut(inside, USER) == [str(model / name)]


@pytest.mark.parametrize(
    ("harm", "python", "importable"),
    [
        ("", True, True),
        ("bin/python", False, True),
        ("bin/python3", False, True),
        ("lib/python3.11/site-packages/sglang/launch_server.py", True, False),
    ],
)
def test_the_interpreter_is_the_one_that_the_unit_runs(
    tmp_path: Path, harm: str, python: bool, importable: bool
) -> None:
    package = tmp_path / "lib/python3.11/site-packages/sglang"
    package.mkdir(parents=True)
    (package / "launch_server.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/bin/sh")
    (tmp_path / "bin/python").symlink_to("python3")
    if harm:
        (tmp_path / harm).unlink()
    found = servicelook.environment(str(tmp_path))
    assert found is not None
    assert (found["python"], found["importable"]) == (python, importable)


@pytest.mark.parametrize(
    ("config", "elsewhere"),
    [
        ("include-system-site-packages = false\n", False),
        ("include-system-site-packages = true\n", True),
        ("", True),
    ],
)
def test_only_an_environment_that_stands_alone_can_lack_a_package(
    tmp_path: Path, config: str, elsewhere: bool
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/bin/sh")
    (tmp_path / "pyvenv.cfg").write_text(config)
    engine = servicelook.environment(str(tmp_path))
    assert engine is not None and engine["elsewhere"] is elsewhere
    found = Found(folders.FAULTS)
    one = {"service": "s", "engine": engine, "manifest": {"needs": {"driver": "1"}}}
    folders.environment(one, "", found)
    assert [f.fault for f in found.list] == ([] if elsewhere else ["engine-none"])


def shut_folder(tmp_path: Path) -> tuple[Path, Path]:
    """(root, the folder that is shut): the interpreter is a link out of the environment."""
    python = tmp_path / "home/python/bin/python3"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    root = tmp_path / "engine"
    (root / "bin").mkdir(parents=True)
    (root / "bin/python").symlink_to("python3")
    (root / "bin/python3").symlink_to(python)
    (tmp_path / "named").symlink_to(root)
    (tmp_path / "home").chmod(0o700)
    return tmp_path / "named", tmp_path / "home"


def test_the_unit_s_user_and_not_root_must_reach_its_program(tmp_path: Path) -> None:
    root, home = shut_folder(tmp_path)
    engine = servicelook.environment(str(root))
    assert engine is not None and engine["python"]
    inside = [step for step in engine["access"] if step["path"].startswith(f"{tmp_path}/")]
    assert access.shut(inside, USER) == [str(home)]
    assert access.shut(inside, {"uid": 0, "gids": [0]}) == []
    home.chmod(0o711)
    engine = servicelook.environment(str(root))
    assert engine is not None
    inside = [step for step in engine["access"] if step["path"].startswith(f"{tmp_path}/")]
    assert access.shut(inside, USER) == []


def test_a_program_that_its_user_cannot_reach_keeps_a_release_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a rollout refuses before it stops what serves well."""
    monkeypatch.setattr(servicelook, "user", lambda name: USER)
    root, home = shut_folder(tmp_path)
    manifest = {"service": "s", "user": "sglang", "engine": {"root": str(root), "version": "1"},
                "needs": {}}  # fmt: skip
    monkeypatch.setattr(examine.look, "look_before", lambda systemd: {})
    monkeypatch.setattr(examine, "before", lambda seen, manifest: [])
    (told,) = examine.preconditions(manifest | {"needs": {"driver": "1"}}, examine.Systemd())
    assert "sglang may not run" in told and str(home) in told + getattr(told, "mend", "")
