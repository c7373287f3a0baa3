"""The program of the role `model`, on real folders."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.described import needs
from opsctl.ansible.target.model import main
from opsctl.onhost.doctor import examine, folders, servicelook
from opsctl.onhost.doctor.fault import Found
from opsctl.onhost.modelcheck import look
from opsctl.onhost.systemd import Systemd
from opsctl.spec import load


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
    said = "2 weight files missing or empty, b.safetensors first"
    assert problems == [said]


def test_too_small(tmp_path: Path) -> None:
    _, problems = look(str(model(tmp_path, {"a.safetensors": 99})), 100)
    (said,) = problems
    assert said.startswith("weight files are 99 bytes together, model.size asks for 100; ")


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


CONFIG, INDEX = "config.json", "model.safetensors.index.json"


def described(*flags: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """The folders of services that differ in their flags, as deploy.yml gives them to the role."""
    said = {
        f"s{n}": {
            "model": {"path": str(path)},
            "engine": {"version": "0.5.9"},
            "flags": one,
            "gpus": [n],
            "port": 30000 + n,
        }
        for n, one in enumerate(flags)
    }
    return list(needs(load({"hosts": {"h1": {"sglang_services": said}}}, "h1"), path)["folders"])


@pytest.mark.parametrize(
    ("files", "flags", "refused"),
    [
        ({CONFIG: "{}"}, {"load-format": "dummy"}, False),
        ({CONFIG: "{}"}, {}, True),
        ({}, {"load-format": "dummy"}, True),
        ({CONFIG: "{}", "model-rank-0-part-0.safetensors": "x"}, {}, False),
        ({CONFIG: "{}", "model-00001-of-00002.safetensors": "x"}, {}, True),
        (
            {CONFIG: "{}", "model-00001-of-00002.safetensors": "x"},
            {"load-format": "sharded_state"},
            False,
        ),
        ({"m.safetensors": "x"}, {"decrypted-config-file": "/etc/c.json"}, False),
        ({"m.safetensors": "x"}, {}, True),
        ({"params.json": "{}", "consolidated.safetensors": "x"}, {}, False),
        ({"params.json": "{}"}, {"load-format": "dummy"}, False),
        ({CONFIG: "{}", INDEX: '{"weight_map": {"a": "gone"}}'}, {}, True),
    ],
)
def test_a_folder_is_refused_where_doctor_names_a_fault_and_nowhere_else(
    tmp_path: Path, files: dict[str, str], flags: dict[str, Any], refused: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = Found(folders.FAULTS)
    seen = {
        **servicelook.model(str(tmp_path)),  # type: ignore[dict-item]
        "foreign": [],
        "cut": [],  # of the files' beginnings, which the role does not read
    }
    one = {"service": "s", "silent": {}, "user": None, "manifest": {"flags": flags}}
    folders.models({**one, "model": seen, "draft": None}, found)
    said = [f"service s0: model {f.detail}" for f in found.list if f.blocks]
    assert main({"folders": described(flags, path=tmp_path)})["problems"] == said
    assert bool(said) == refused


def test_a_folder_of_several_services_is_whole_enough_for_each(tmp_path: Path) -> None:
    dummy, whole = {"load-format": "dummy", "decrypted-config-file": "/etc/c.json"}, {}
    for flags in ((dummy, whole), (whole, dummy)):
        (folder,) = described(*flags, path=tmp_path)
        assert (folder["load_format"], folder["own_config"]) == ("auto", True)
    (folder,) = described(dummy, dummy, path=tmp_path)
    assert (folder["load_format"], folder["own_config"]) == ("dummy", False)


def test_a_draft_is_loaded_as_its_own_flags_say(tmp_path: Path) -> None:
    draft = {"speculative-draft-model-path": "/srv/d", "speculative-draft-load-format": "dummy"}
    _, folder = described(draft, path=tmp_path)
    assert (folder["path"], folder["load_format"], folder["own_config"]) == (
        "/srv/d",
        "dummy",
        True,
    )


def test_damage_of_what_a_process_serves_stops_nothing_else(tmp_path: Path) -> None:
    """Staging refuses whatever would have to start with it."""
    folder = model(tmp_path / "m", {"a.safetensors": 1})
    (folder / CONFIG).unlink()
    asked = {"folders": [{"path": str(folder), "what": "model"}]}
    said = f"model {folder}: config.json is missing"
    assert (main(asked)["problems"], main(asked)["warnings"]) == ([said], [])
    sleeps = "import sys; sys.stdin.read()"
    command = [sys.executable, "-c", sleeps, "--model-path", str(folder)]
    engine = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        found = main(asked)
    finally:
        engine.communicate()
    assert found["problems"] == []
    assert found["warnings"] == [f"{said}; process {engine.pid} serves on, no start would"]
    release = {"service": "s", "model": {"path": str(folder)}}
    assert f"{folder}: config.json is missing" in examine.preconditions(release, Systemd())
