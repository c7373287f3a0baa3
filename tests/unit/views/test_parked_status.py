"""A service that is stopped for work on its host says why, and what starts it again."""

from __future__ import annotations

from opsctl.views import status


def test_a_parked_service_says_what_starts_it() -> None:
    parked = {"run": "r", "reason": "CVE: driver 580.65.06 → 580.95.05", "since": 0.0}
    service = {"service": "kimi", "state": "inactive", "parked": parked}
    assert status.note(service) == (
        "stopped for: CVE: driver 580.65.06 → 580.95.05; a boot starts it when doctor finds the "
        "host well, or now: opsctl start kimi"
    )
    assert "stopped for" not in status.note({**service, "parked": None})


def test_a_masked_unit_says_so_and_what_brings_it_back() -> None:
    mend = "systemctl unmask sglang-kimi.service, then opsctl deploy kimi"
    release = {"running": "0", "edited": False}
    service = {"service": "kimi", "state": "inactive", "release": release, "masked": mend}
    (row,) = status.rows({"h1": {"services": [service], "time": 0.0}})
    assert row[2:4] == ("masked", "–") and row[-1] == f"masked: {mend}"


def test_a_unit_that_is_started_over_and_over_is_not_told_as_on_its_way() -> None:
    service = {"service": "kimi", "state": "activating", "sub": "auto-restart"}
    (row,) = status.rows({"h1": {"services": [service], "time": 0.0}})
    assert row[2] == "auto-restart"
