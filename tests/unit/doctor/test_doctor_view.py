"""The view in 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from opsctl.onhost.doctor import examine
from opsctl.views.doctor import passed, report
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
