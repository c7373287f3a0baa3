"""A playbook that would reach no host says so; run by the real ansible-playbook, contacts none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from opsctl.ansible.fleet import wrong
from opsctl.errors import OpsctlError
from opsctl.inventory import as_far
from opsctl.paths import share

EXAMPLE = share() / "inventory" / "example"
BOOKS = sorted(path.name for path in (share() / "playbooks").glob("*.yml"))
BOUGHT = ("no hosts matched", "PLAY RECAP", "Traceback")  # what would look like a deployment


def play(
    book: str, *more: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("ANSIBLE_", "OPSCTL_"))}
    return subprocess.run(
        [program, str(share() / "playbooks" / book), *more],
        cwd=cwd,
        env={**plain, "ANSIBLE_NOCOLOR": "1", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_there_are_the_playbooks_that_are_meant() -> None:
    assert {"deploy.yml", "read.yml", "rollback.yml", "upgrade_driver.yml", "verify.yml"} == {
        *BOOKS
    }


@pytest.mark.parametrize("book", BOOKS)
def test_an_inventory_that_only_opsctl_reads_is_no_deployment(book: str, tmp_path: Path) -> None:
    done = play(book, cwd=tmp_path, environment={"OPSCTL_INVENTORY": str(EXAMPLE)})
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "no inventory is given, and Ansible's own has no hosts: nothing was done" in said
    assert f'next: the same with -i "$OPSCTL_INVENTORY" ({EXAMPLE})' in said
    assert [words for words in BOUGHT if words in said] == []


@pytest.mark.parametrize("start", [share(), share() / "playbooks"])
def test_it_is_said_in_the_folders_of_our_settings_too(start: Path) -> None:
    done = play("deploy.yml", "--check", cwd=start)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "nothing was done" in said
    assert "next: the same with -i INVENTORY (ansible-playbook does not read OPSCTL_INV" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["-i", "gone/hosts.yml"], "gone/hosts.yml is not there: nothing was done"),
        (["-i", "gone", "--limit", "gpu-01"], "gone is not there: nothing was done"),
        (["-i", str(EXAMPLE), "-i", "gone"], "gone is not there: nothing was done"),
        (["-i", "empty.yml"], "empty.yml has no hosts: nothing was done"),
    ],
)
def test_an_inventory_that_is_not_there_or_empty_is_named(
    more: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.yml").write_text("kimi: {hosts: {}}\n")
    done = play("rollback.yml", *more, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and words in said
    assert [found for found in BOUGHT if found in said] == []


@pytest.mark.parametrize(
    ("book", "more", "hosts"),
    [
        *((book, ["-i", str(EXAMPLE), "--limit", "gpu-02"], ["gpu-02"]) for book in BOOKS),
        ("deploy.yml", ["-i", str(EXAMPLE)], ["gpu-01", "gpu-02"]),
        ("deploy.yml", ["-i", "h9,"], ["h9"]),
        ("verify.yml", ["-i", "localhost,"], ["localhost"]),
        ("deploy.yml", ["-i", "./asked"], ["h7"]),
    ],
)
def test_every_play_is_of_all_hosts_or_of_the_limit(
    book: str, more: list[str], hosts: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "asked"
    script.write_text('#!/bin/sh\necho \'{"gpu": {"hosts": ["h7"]}, "_meta": {"hostvars": {}}}\'\n')
    script.chmod(0o755)
    done = play(book, *more, "--list-hosts", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plays = len(yaml.safe_load((share() / "playbooks" / book).read_text()))
    found = [line.strip() for line in done.stdout.splitlines() if line.startswith("      ")]
    assert sorted(found) == sorted(hosts * plays)
    assert done.stdout.count("pattern: ['all']") == plays


def test_a_check_of_the_syntax_needs_no_inventory(tmp_path: Path) -> None:
    done = play("deploy.yml", "--syntax-check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_opsctl_says_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.yml").write_text("kimi: {hosts: {}}\n")
    with pytest.raises(OpsctlError) as raised:
        as_far(tmp_path / "empty.yml")
    assert raised.value.message == f"the inventory {tmp_path / 'empty.yml'} has no hosts"


def test_the_variable_is_not_offered_where_it_was_given(tmp_path: Path) -> None:
    asked = {"OPSCTL_INVENTORY": str(tmp_path)}
    assert "--graph shows what Ansible reads" in wrong([str(tmp_path)], [], asked)
    assert wrong([str(tmp_path)], ["h1"], asked) == ""
