"""Flags of an imported command that hold JSON, and files that are read in its place."""

from __future__ import annotations

import pytest

from tests.unit.importing.test_import_texts import PYTHON, refusals, service

STORE = "hicache-storage-backend-extra-config"
CONTAINER = (
    "docker run --gpus all -v /etc/sglang:/conf:ro -v /data:/models lmsysorg/sglang:v0.5.9 "
    "python3 -m sglang.launch_server --model-path /models/m"
)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--json-model-override-args rope", "key flags.json-model-override-args: is not JSON"),
        (f"--{STORE} [1]", "must be a mapping (value: [1]); allowed: a mapping (JSON), or @FILE"),
        (f"--{STORE} @/etc/s.conf", "allowed: a mapping (JSON), or @FILE of .json, .toml"),
        ("--preferred-sampling-params \"{'top_p': 1}\"", "JSON takes double quotes alone"),
        (f"--{STORE} @s.json", "give that folder: --cwd DIR"),
    ],
)
def test_text_that_is_no_json_is_refused(args: str, said: str) -> None:
    assert said in refusals(f"{PYTHON} {args}")


def test_a_file_in_place_of_json_keeps_its_place() -> None:
    assert service(f"{PYTHON} --{STORE} @/etc/s.json")["flags"] == {STORE: "@/etc/s.json"}
    found = service(f"{PYTHON} --{STORE} @s.json --deepep-config ./d.json", cwd="/srv/run")
    assert found["flags"] == {STORE: "@/srv/run/s.json", "deepep-config": "/srv/run/d.json"}
    inside = service(f"{CONTAINER} --{STORE} @/conf/s.toml")
    assert inside["flags"] == {STORE: "@/etc/sglang/s.toml"}
    assert "no folder of the host is mounted" in refusals(f"{CONTAINER} --{STORE} @/opt/s.toml")


def test_files_that_other_flags_name_are_those_of_the_folder() -> None:
    found = service(f"{PYTHON} --dllm-algorithm-config conf/a.yaml", cwd="/srv/run")
    assert found["flags"] == {"dllm-algorithm-config": "/srv/run/conf/a.yaml"}


def test_empty_text_is_as_if_the_flag_were_not_there() -> None:
    assert "flags" not in service(f"{PYTHON} --{STORE} ''")
    assert "is not JSON" in refusals(f"{PYTHON} --json-model-override-args ''")
