"""The view in 80 columns."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from opsctl.cli.main import built
from opsctl.onhost.doctor import examine
from opsctl.views.doctor import document, on, passed, report, rows
from tests.unit.doctor import hosts
from tests.unit.doctor.test_doctor_faults import FAULTS


def test_every_finding_fits_a_terminal_of_80_columns() -> None:
    for _, host, plant, _, _ in FAULTS:
        seen = getattr(hosts, host)()
        plant(seen)
        checks = [one.as_json() for one in examine.judge(seen)]
        out = io.StringIO()
        Console(file=out, width=80, color_system=None).print(report({"h1": checks, "h2": checks}))
        assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= 80
        assert "checks passed" in out.getvalue()


def test_a_host_of_which_nothing_passed_is_not_ticked_off() -> None:
    good, bad = {"status": "pass"}, {"status": "fail"}
    assert passed({"h1": [good, bad], "h4": [bad]}) == ["h1: 1 check passed"]


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("opsctl deploy kimi", "opsctl deploy kimi --limit h1"),
        (
            "opsctl watch glm-5.2; opsctl status glm-5.2",
            "opsctl watch glm-5.2 --limit h1; opsctl status glm-5.2 --limit h1",
        ),
        ("remove it, then opsctl restart a.", "remove it, then opsctl restart a --limit h1."),
        ("opsctl start kimi --limit h2", "opsctl start kimi --limit h2"),
        ("opsctl doctor --debug", "opsctl doctor --debug --limit h1"),
        ("opsctl memory", "opsctl memory --limit h1"),
        ("opsctl config validate", "opsctl config validate"),
        (
            "look with `opsctl status`; wait, or ask the owner",
            "look with `opsctl status --limit h1`; wait, or ask the owner",
        ),
        ("opsctl watch kimi (run r1)", "opsctl watch kimi --limit h1 (run r1)"),
        ("opsctl stop kimi --limit h1,h2; then", "opsctl stop kimi --limit h1,h2; then"),
        ("chmod 600 /etc/opsctl/kimi", "chmod 600 /etc/opsctl/kimi"),
        ("ls /var/lib/opsctl stop", "ls /var/lib/opsctl stop"),
        ("or opsctl -K; opsctl says so", "or opsctl -K; opsctl says so"),
    ],
)
def test_a_command_for_a_service_is_for_the_host_that_was_found_ill(hint: str, said: str) -> None:
    assert on(hint, "h1") == said


def typed(hint: str) -> Iterator[list[str]]:
    """The commands of opsctl's in a hint, as a shell would split them."""
    for part in re.split(r"[;|]|&&|, | \(|\)", hint):
        if match := re.search(r"(?<![/\w.-])opsctl (.*)", part):
            yield shlex.split(match[1])


def parsed(words: list[str]) -> None:
    """Raises what the parser of the command itself raises."""
    command: Any = typer.main.get_command(built())
    while words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:] or [""]
    command.make_context("opsctl", [word for word in words if word])


CAPITALS = {  # words of commands and of prose, and no place that somebody has to fill in
    *("ACS", "BIOS", "CUDA", "DEFAULT", "ECC", "GPU", "IOMMU", "NVLINK", "SPX", "TEMPERATURE"),
    *("BUG", "NAME", "LFS", "NOPASSWD", "SSH", "TMPDIR", "INPUT", "GB"),
}  # fmt: skip


def hints() -> Iterator[tuple[str, str]]:
    for fault, host, plant, _, _ in FAULTS:
        seen = getattr(hosts, host)()
        plant(seen)
        for one in examine.judge(seen):
            yield fault, one.mend


@pytest.mark.parametrize("inventory", [None, Path("/srv/two words/hosts.yml")])
def test_every_hint_can_be_typed(inventory: Path | None) -> None:
    """Nothing is left to be filled in that the finding knows, and the command's own parser takes
    each command of opsctl's, for the hosts and the inventory that were looked at."""
    commands = 0
    for fault, mend in hints():
        hint = on(mend, "h1,h2", inventory)
        left = set(re.findall(r"(?<![\w-])[A-Z]{2,}(?![\w=])", hint)) - CAPITALS
        assert not left, (fault, hint)
        for words in typed(hint):
            commands += 1
            assert words[words.index("--limit") + 1] == "h1,h2", hint
            assert inventory is None or words[words.index("-i") + 1] == str(inventory), hint
            parsed(words)
    assert commands > 20


def test_a_command_that_cannot_be_typed_is_seen() -> None:
    for wrong in ("opsctl logs of that time", "opsctl logs", "opsctl start kimi --onto h1"):
        (words,) = typed(f"see Xid, {wrong}; or reboot")
        with pytest.raises(typer.BadParameter.__mro__[1]):
            parsed(words)


def test_a_playbook_is_for_the_inventory_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And from whichever folder; nothing is guessed where opsctl was told."""
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / "hosts.yml").write_text("all: {hosts: {h1: }}")
    check = {"id": "user", "status": "fail", "detail": "d", "cause": "", "fault": "user-missing"}
    check |= {"hint": "ansible-playbook playbooks/deploy.yml; or so", "service": "kimi"}
    for here, given, shown in (
        (tmp_path, Path("fleet"), "-i fleet "),
        (Path("/"), fleet, f"-i {str(fleet)[1:]} "),
        (fleet, Path("../fleet"), "-i ../fleet "),
    ):
        monkeypatch.chdir(here)
        hint = rows({"h1": [check]}, given)[0][5]
        assert hint.startswith("ansible-playbook -i ") and shown in hint, hint
        assert document({"h1": [check]}, given)["checks"][0]["hint"] == hint
        out = io.StringIO()
        Console(file=out, width=300, color_system=None).print(report({"h1": [check]}, given))
        assert hint in out.getvalue()


def test_hosts_with_one_fault_are_named_in_its_command() -> None:
    one = {"id": "unit", "status": "warn", "detail": "edited", "cause": "", "fault": "unit-edited"}
    one |= {"hint": "opsctl deploy kimi", "service": "kimi"}
    assert [row[5] for row in rows({"h1": [one], "h2": [one]})] == [
        "opsctl deploy kimi --limit h1,h2"
    ]
    flat = document({"h1": [one], "h2": [one]})["checks"]
    assert [check["hint"] for check in flat] == [
        "opsctl deploy kimi --limit h1",
        "opsctl deploy kimi --limit h2",
    ]
