"""`opsctl catalog`: what is listed, fetched, refused, and said of a change of version."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from opsctl.cli import released
from tests.unit.engine.test_store import forget

ARGS = (
    "class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n"
    '        parser.add_argument("--tp-size", type=int, default=1)\n'
)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    forget()
    yield tmp_path / "data" / "opsctl" / "catalogue"
    forget()


def wheel(folder: Path, version: str, args: str = ARGS) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("sglang/srt/server_args.py", args)
        made.writestr(f"sglang-{version}.dist-info/METADATA", f"Name: sglang\nVersion: {version}\n")
    return path


def fake_pip(folder: Path, script: str) -> list[str]:
    """A program in pip's place; it sees pip's arguments."""
    program = folder / "pip"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return [str(program)]


def test_list(cli):
    rows = cli("catalog", "list").stdout.splitlines()
    assert rows[0].split() == ["VERSION", "FLAGS", "NEW", "GONE", "ADDED"]
    assert rows[1].split() == ["0.5.2", "210", "–", "–"]
    assert rows[-1].split() == ["0.5.23", "531", "11", "1"]
    assert len(rows) == 39


def test_list_for_programs(cli):
    found = json.loads(cli("catalog", "list", "-o", "json").stdout)
    assert found["schema_version"] == 1
    assert found["versions"][0] == {
        "version": "0.5.2", "flags": 210, "new": None, "gone": None, "added": None,
    }  # fmt: skip


def test_add_a_wheel(cli, tmp_path, data):
    done = cli("catalog", "add", "0.5.99", "--from", str(wheel(tmp_path, "0.5.99")))
    assert (done.exit_code, done.stdout) == (0, f"{data / '0.5.99.json'}\n")
    assert "SGLang 0.5.99 has 1 flag, 0 new and 530 gone since 0.5.23" in done.stderr
    forget()
    assert cli("catalog", "list").stdout.splitlines()[-1].split()[-1] == str(data / "0.5.99.json")
    again = cli("catalog", "add", "0.5.99", "--from", str(wheel(tmp_path, "0.5.99")))
    assert (again.exit_code, again.stdout) == (0, "")
    assert "was there already" in again.stderr


@pytest.mark.parametrize("inner", ["", "sglang", "venv"])
def test_add_a_folder(cli, tmp_path, data, inner):
    top = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (top / "sglang" / "srt").mkdir(parents=True)
    (top / "sglang" / "srt" / "server_args.py").write_text(ARGS)
    (top / "sglang" / "version.py").write_text('__version__ = "0.5.99"\n')
    given = {"": top, "sglang": top / "sglang", "venv": tmp_path / "venv"}[inner]
    assert cli("catalog", "add", "0.5.99", "--from", str(given)).exit_code == 0
    assert (data / "0.5.99.json").is_file()
    other = cli("catalog", "add", "0.5.98", "--from", str(given))
    assert other.exit_code == 2
    assert f"{given} is SGLang 0.5.99, not 0.5.98" in other.stderr
    assert f"opsctl catalog add 0.5.99 --from {given}" in other.stderr


REFUSED = [
    ("latest", None, 2, "'latest' is no version"),
    ("0.5.99", "nowhere.whl", 2, "there is no"),
    ("0.5.99", ".", 2, "holds no SGLang"),
    ("0.5.99", "text.whl", 1, "cannot be read as a wheel"),
]


@pytest.mark.parametrize(("version", "given", "code", "said"), REFUSED)
def test_what_is_no_package(cli, tmp_path, data, version, given, code, said):
    (tmp_path / "text.whl").write_text("no zip")
    more = ["--from", str(tmp_path / given)] if given else []
    done = cli("catalog", "add", version, *more)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr
    assert not data.exists()


def test_a_wheel_of_another_version(cli, tmp_path):
    done = cli("catalog", "add", "0.5.98", "--from", str(wheel(tmp_path, "0.5.99")))
    assert done.exit_code == 2
    assert "is SGLang 0.5.99, not 0.5.98" in done.stderr


def test_a_build_of_ones_own(cli, tmp_path, data):
    given = str(wheel(tmp_path, "0.5.9"))
    refused = cli("catalog", "add", "0.5.9", "--from", given)
    assert refused.exit_code == 2
    assert "opsctl has its own catalogue of SGLang 0.5.9" in refused.stderr
    assert cli("catalog", "add", "0.5.9+mine", "--from", given).exit_code == 0
    assert (data / "0.5.9+mine.json").is_file()


def test_pip_fetches_where_nothing_is_given(cli, tmp_path, monkeypatch, data):
    made = wheel(tmp_path, "0.5.99")
    script = f'echo "$@" > {tmp_path}/asked; for a; do case $a in --dest=*) ' \
             f'cp {made} "${{a#--dest=}}";; esac; done'  # fmt: skip
    monkeypatch.setattr(released, "_pip", lambda version: fake_pip(tmp_path, script))
    assert cli("catalog", "add", "0.5.99").exit_code == 0
    asked = (tmp_path / "asked").read_text().split()
    assert asked[0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "sglang==0.5.99"} <= set(asked)
    assert (data / "0.5.99.json").is_file()


def test_a_second_try_for_the_platform_that_newer_wheels_are_built_for(cli, tmp_path, monkeypatch):
    made = wheel(tmp_path, "0.5.99")
    script = f'case "$*" in *--platform=manylinux*) for a; do case $a in --dest=*) ' \
             f'cp {made} "${{a#--dest=}}";; esac; done;; *) exit 1;; esac'  # fmt: skip
    monkeypatch.setattr(released, "_pip", lambda version: fake_pip(tmp_path, script))
    assert cli("catalog", "add", "0.5.99").exit_code == 0


def test_pips_failure_is_told_with_what_to_type(cli, tmp_path, monkeypatch, data):
    script = "echo 'WARNING: retrying' >&2; echo 'ERROR: No matching distribution' >&2; exit 1"
    monkeypatch.setattr(released, "_pip", lambda version: fake_pip(tmp_path, script))
    done = cli("catalog", "add", "0.5.99")
    assert done.exit_code == 1
    assert "pip could not fetch sglang 0.5.99" in done.stderr
    assert "ERROR: No matching distribution" in done.stderr
    assert "retrying" not in done.stderr
    assert "pip download --no-deps sglang==0.5.99" in done.stderr
    assert not data.exists()


def test_without_any_pip(cli, monkeypatch):
    monkeypatch.setattr(released, "find_spec", lambda name: None)
    monkeypatch.setattr(released.shutil, "which", lambda name: None)
    done = cli("catalog", "add", "0.5.99")
    assert done.exit_code == 1
    assert "there is no pip" in done.stderr
    assert "opsctl catalog add 0.5.99 --from" in done.stderr


def test_a_data_folder_that_cannot_be_written(cli, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "taken"))
    done = cli("catalog", "add", "0.5.99", "--from", str(wheel(tmp_path, "0.5.99")))
    assert done.exit_code == 1
    assert "set XDG_DATA_HOME" in done.stderr


def test_diff_of_all_flags(cli):
    lines = cli("catalog", "diff", "0.5.22", "0.5.23").stdout.splitlines()
    assert lines[:2] == ["no longer there (1)", "  speculative-skip-dp-mlp-sync    is gone"]
    assert "  tool-call-parser                         +beam +response_template" in lines


def test_diff_of_the_same(cli):
    assert "no difference" in cli("catalog", "diff", "0.5.8", "0.5.8.post1").stdout


def test_diff_of_a_service_of_the_inventory(cli):
    """h1 and h2 have it alike; h3 alone has a host tier."""
    cli.describes("h3", "kimi")
    cli.raw["hosts"]["h3"]["sglang_overrides"] = {
        "kimi": {"flags": {"enable-hierarchical-cache": True, "cuda-graph-max-bs": 64}}
    }
    done = cli("catalog", "diff", "0.5.9", "0.5.23", "kimi", "-o", "json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["changes"]
    seen = {(tuple(row["hosts"]), row["kind"], row["flag"]) for row in rows}
    assert (("h3",), "default", "hicache-ratio") in seen
    assert (("h3",), "renamed", "cuda-graph-max-bs") in seen
    assert (("h1", "h2"), "default", "fp4-gemm-backend") in seen
    text = cli("catalog", "diff", "0.5.9", "0.5.23", "kimi", "--limit", "h3").stdout
    assert text.splitlines()[0] == "kimi on h3"
    assert text.splitlines()[-1] == "SGLang 0.5.23 refuses 1 flag as it is written"


def test_diff_of_a_description_in_a_file(cli, tmp_path):
    file = tmp_path / "kimi.yml"
    file.write_text(
        "kimi:\n  model: {path: '{{ models }}/k', served_name: k}\n  engine: {version: 0.5.9}\n"
        "  flags: {tp-size: 8, stream-output: true}\n"
    )
    lines = cli("catalog", "diff", "0.5.9", "0.5.23", str(file)).stdout.splitlines()
    assert lines[:3] == [
        "kimi",
        "under another name (1)",
        "  stream-output    is now incremental-streaming-output",
    ]
    wrong = cli("catalog", "diff", "0.5.23", "0.5.9", str(file))
    assert wrong.exit_code == 2
    assert "write incremental-streaming-output" in wrong.stderr


FILES = [
    ("kimi: {model: {path: /m}, flags: [tp-size]}", "must be a mapping"),
    ("kimi: {model: {path: /m}, flags: {tp-size: '{{ gpus }}'}}", "is a template"),
]


@pytest.mark.parametrize(("text", "said"), FILES)
def test_a_file_that_cannot_be_judged(cli, tmp_path, text, said):
    (tmp_path / "kimi.yml").write_text(text)
    done = cli("catalog", "diff", "0.5.9", "0.5.23", str(tmp_path / "kimi.yml"))
    assert done.exit_code == 2
    assert said in done.stderr


def test_diff_with_a_version_that_is_not_known(cli):
    done = cli("catalog", "diff", "0.5.9", "0.5.99")
    assert done.exit_code == 2
    assert "opsctl catalog add 0.5.99" in done.stderr
