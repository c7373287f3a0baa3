"""The program of the role `model`, on real folders."""

from __future__ import annotations

import json
from pathlib import Path

from opsctl.ansible.target.model import main
from opsctl.onhost.modelcheck import look


def model(folder: Path, shards: dict[str, int], *, config: str = "{}") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(config)
    names = {f"layer.{n}": name for n, name in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    for name, size in shards.items():
        if size:
            (folder / name).write_bytes(b"x" * size)
    return folder


def test_complete(tmp_path: Path) -> None:
    assert look(str(model(tmp_path, {"a.safetensors": 60, "b.safetensors": 40})), 100) == (100, [])


def test_missing_and_empty_shards_are_named(tmp_path: Path) -> None:
    folder = model(tmp_path, {"a.safetensors": 1, "b.safetensors": 0, "c.safetensors": 0})
    (folder / "c.safetensors").touch()
    _, problems = look(str(folder), None)
    said = "2 of 3 weight files missing or empty: b.safetensors, c.safetensors"
    assert problems == [said]


def test_too_small(tmp_path: Path) -> None:
    _, problems = look(str(model(tmp_path, {"a.safetensors": 99})), 100)
    assert problems == ["weight files are 99 bytes together, model.size asks for 100"]


def test_one_file_without_an_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert look(str(tmp_path), None)[1] == ["no weight files"]
    (tmp_path / "model.safetensors").write_bytes(b"1")
    assert look(str(tmp_path), None) == (1, [])


def test_broken_files(tmp_path: Path) -> None:
    folder = model(tmp_path, {"a.safetensors": 1}, config="{not json")
    assert "config.json cannot be read" in look(str(folder), None)[1][0]
    (folder / "config.json").unlink()
    (folder / "model.safetensors.index.json").write_text("[]")
    problems = look(str(folder), None)[1]
    assert problems[0] == "config.json is missing"
    assert problems[1] == "model.safetensors.index.json is not a JSON object"


def test_no_folder(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    answer = main({"folders": [{"path": none, "size": None, "what": "draft model"}]})
    assert answer["problems"] == [f"draft model {none}: no such folder on the host"]
