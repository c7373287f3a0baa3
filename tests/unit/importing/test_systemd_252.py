"""Files of variables and words of units against what systemd 252 made of them: the table was
taken from a host, and tests/lab/test_unit_real.py asks systemd for it again.

`files`: text, variables (null: systemd refuses the file), what $E in ExecStart= becomes. `units`:
settings (with those of `set` before them, /p the program), argv, variables beyond those of `set`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.importing import Asked, from_text
from opsctl.importing.model import Report
from opsctl.importing.unit import envfile, launch, read, words

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("systemd_252.json").read_text())


@pytest.mark.parametrize(("text", "wanted", "put_in"), TABLE["files"])
def test_a_file_of_variables(text: str, wanted: dict[str, str] | None, put_in: list[str]) -> None:
    found = envfile.read(text)
    assert (None if found.refused else found.values) == wanted
    if wanted is not None:
        assert words.expand(["$E"], found.values) == put_in


def unit(text: str) -> read.Unit:
    whole = f"[Service]\nUser=root\n{TABLE['set']}{text}\n"
    return read.read([("/etc/systemd/system/NAME.service", whole)])


@pytest.mark.parametrize(("text", "argv", "env"), TABLE["units"])
def test_a_unit(text: str, argv: list[str] | None, env: dict[str, str]) -> None:
    report = Report()
    found = launch.started(unit(text), {}, {}, report)
    if argv is None or any("\udc80" <= char <= "\udcff" for word in argv for char in word):
        assert found is None and report.problems
        return
    before = launch.started(unit("ExecStart=/p"), {}, {}, Report())
    assert found is not None and before is not None, report.problems
    assert found[0] == ["/p", *argv]
    beyond = {name: value for name, value in found[1].items() if before[1].get(name) != value}
    assert beyond == env


def test_the_letters_of_specifiers() -> None:
    known = set(words._SPECIFIERS) - {"D"}  # of later versions
    assert known == set(TABLE["specifiers"])


ENGINE = "ExecStart=/opt/sglang/0.5.9/bin/python -m sglang.launch_server --model-path /srv/m/k "
TOLD = [  # what a file holds, the unit's line for it, and what the import says of it
    ("export A=1\n", "/e", "export A in /e: is no name of a variable: systemd ignores the line"),
    ("A: my=1\n", "/e", "a line of /e: is no name of a variable"),
    ("A=a\0b\n", "/e", "variables come from /e, which holds a NUL"),
    ("A=\udcff\n", "/e", "variables come from /e, which holds bytes that are no UTF-8 text"),
    ("A=\udcff\n", "-/e", "EnvironmentFile=-/e: holds bytes that are no UTF-8 text: systemd"),
    ("A=1\n", "/%k", "EnvironmentFile=/%k: systemd ignores it: %k is no specifier"),
]  # fmt: skip


def told(text: str, files: dict[str, str]) -> str:
    found = from_text([("/etc/systemd/system/x.service", text)], asked=Asked(files=files))
    notes = [f"{note.what}: {note.why}" for note in found.notes]
    return "\n".join([*notes, *map(str, found.problems)])


@pytest.mark.parametrize(("content", "line", "message"), TOLD)
def test_what_systemd_takes_nothing_of(content: str, line: str, message: str) -> None:
    assert message in told(f"[Service]\nEnvironmentFile={line}\n{ENGINE}\n", {"/e": content})


@pytest.mark.parametrize(
    ("words_of", "message"),
    [
        (
            "--served-model-name $DIR/m",
            "$DIR/m: systemd takes all of it for the name of a variable",
        ),
        ("--port ${DIR-8}", "${DIR-8}: systemd takes all of it"),
        ("--port %k", "%k is no specifier of systemd; a percent sign is written %%"),
        ("--served-model-name \\xff", "an argument holds bytes that are no UTF-8 text"),
    ],
)
def test_words_that_systemd_reads_otherwise_than_a_shell(words_of: str, message: str) -> None:
    assert message in told(f"[Service]\nEnvironment=DIR=/d\n{ENGINE}{words_of}\n", {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Exec='", "a quote (') is never closed"),
        ("PodmanArgs='", "a quote (') is never closed"),
        ("Entrypoint='", "a quote (') is never closed"),
        ("WorkingDir=/%k", "%k is no specifier of systemd"),
    ],
)
def test_a_container_file_that_podman_would_not_take(line: str, message: str) -> None:
    found = told(f"[Container]\nImage=a\n{line}\n", {})
    assert f"key [Container]: {message}" in found


def test_a_folder_with_a_specifier_that_is_none() -> None:
    assert "WorkingDirectory=/%k: systemd ignores it" in told(
        f"[Service]\nWorkingDirectory=/%k\n{ENGINE}\n", {}
    )
