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


def told(path: Path, flags: dict[str, Any] | None = None) -> dict[str, tuple[str, bool]]:
    """Fault → what is said of the folder, and whether it keeps a release from starting."""
    found = Found(folders.FAULTS)
    one = {"service": "s", "silent": {}, "user": None, "manifest": {"flags": flags or {}}}
    folders.models({**one, "model": look(path), "draft": None}, found)
    return {f.fault: (f.detail, f.blocks) for f in found.list}


def test_a_whole_model_is_whole(model: Path) -> None:
    found = look(model, 3 * 64)
    assert (found["cut"], found["short"], found["missing"]) == ([], "", [])
    assert told(model) == {}


INDEX = "model.safetensors.index.json"
PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:aaaa\nsize 8546875000\n"


def put(folder: Path, **files: bytes | None) -> None:
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)


# what is done to the folder: file → its content, None: it is gone
@pytest.mark.parametrize(
    ("files", "flags", "fault", "words"),
    [
        ({"config.json": None}, {}, "model-odd", "config.json is missing"),
        ({"config.json": b""}, {}, "model-odd", "config.json cannot be read"),
        ({"config.json": b"[]"}, {}, "model-odd", "is not a JSON object"),
        ({"config.json": None}, {"load-format": "dummy"}, "model-odd", "config.json is missing"),
        ({"config.json": None, "params.json": b"{}"}, {}, "", ""),  # Mistral's own format
        ({"config.json": None}, {"decrypted-config-file": "/etc/c.json"}, "", ""),
        ({INDEX: b"{"}, {}, "model-odd", f"{INDEX} cannot be read"),
        ({INDEX: b"{}"}, {}, "model-odd", "has no weight_map"),
        ({"model-1.safetensors": None}, {}, "model-incomplete", ": model-1.safetensors is missing"),
        ({"model-1.safetensors": None, "model-2.safetensors": b""}, {}, "model-incomplete",
         "2 weight files missing or empty, model-1.safetensors first"),
        ({"model-1.safetensors": None}, {"load-format": "dummy"}, "", ""),
        ({"model-1.safetensors": None}, {"load-format": "sharded_state"}, "", ""),
        ({"model-1.safetensors": PAGE}, {}, "model-foreign", "model-1.safetensors is no safetens"),
        ({"model-1.safetensors": LFS}, {}, "model-foreign", "is a pointer of git-lfs"),
        # whose other form was left out when it was fetched: nobody loads that
        ({"pytorch_model.bin.index.json": b'{"weight_map": {"a": "a.bin"}}'}, {}, "", ""),
        ({"pytorch_model.bin.index.json": b"{"}, {}, "", ""),
    ],
)  # fmt: skip
def test_what_the_engine_cannot_load_keeps_it_from_starting(
    model: Path, files: dict[str, bytes | None], flags: dict[str, Any], fault: str, words: str
) -> None:
    put(model, **files)
    found = told(model, flags)
    assert list(found) == ([fault] if fault else [])
    assert all(words in text and blocks for text, blocks in found.values())


@pytest.mark.parametrize(
    ("names", "gone", "missing"),
    [
        ("model-{:05d}-of-000004.safetensors", 3, ["model-00003-of-000004.safetensors"]),
        ("model-{:05d}-of-00004.safetensors", 4, ["model-00004-of-00004.safetensors"]),
        ("pytorch_model-{:05d}-of-00004.bin", 1, ["pytorch_model-00001-of-00004.bin"]),
        ("part{}.safetensors", 2, []),  # no number tells how many there are
    ],
)
def test_without_an_index_the_numbers_tell_what_is_missing(
    tmp_path: Path, names: str, gone: int, missing: list[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    for n in range(1, 5):
        weights(tmp_path / names.format(n))
    several = "-of-" in names and names.endswith(".safetensors")
    assert {fault: blocks for fault, (_, blocks) in told(tmp_path).items()} == (
        {"model-unindexed": False} if several else {}  # SGLang loads them all the same
    )
    (tmp_path / names.format(gone)).unlink()
    assert look(tmp_path)["missing"] == missing
    blocking = [fault for fault, (_, blocks) in told(tmp_path).items() if blocks]
    assert blocking == ["model-incomplete"] * len(missing)


def test_numbers_may_begin_with_none(tmp_path: Path) -> None:
    for n in range(3):
        weights(tmp_path / f"model-{n:05d}-of-00003.safetensors")
    assert look(tmp_path)["missing"] == []


def test_a_model_may_be_one_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert told(tmp_path / "m.gguf") == {}


def test_files_that_are_cut_off_are_named_without_any_size_described(model: Path) -> None:
    for name in ("model-0.safetensors", "model-2.safetensors"):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(whole[:-1])
    (model / "consolidated.safetensors").write_bytes(b"half of what nothing reads")
    cut = look(model)["cut"]
    assert [text.split()[0] for text in cut] == ["model-0.safetensors", "model-2.safetensors"]
    assert f"{len(whole) - 1:,} of {len(whole):,} bytes" in cut[0]


def test_where_headers_tell_nothing_the_sum_must_do(model: Path) -> None:
    """Of a header in no form that is known, nothing is said but by its size."""
    head = b'{"tensor": {}}'
    for file in model.glob("*.safetensors"):
        file.write_bytes(struct.pack("<Q", len(head)) + head + bytes(50))
    assert look(model)["short"] == ""
    (model / "model-1.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    assert look(model)["short"] == (
        "weight files are 166 bytes together, the model's index names 192; "
        "the smallest is model-1.safetensors (22)"
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
