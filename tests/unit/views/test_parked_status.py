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
