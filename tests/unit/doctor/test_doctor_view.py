"""The view in 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

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
        ("opsctl doctor --limit HOST --debug", "opsctl doctor --limit HOST --debug"),
        ("chmod 600 /etc/opsctl/kimi", "chmod 600 /etc/opsctl/kimi"),
    ],
)
def test_a_command_for_a_service_is_for_the_host_that_was_found_ill(hint: str, said: str) -> None:
    assert on(hint, "h1") == said


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
