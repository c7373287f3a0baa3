"""verify.yml shows advisories beside the gates, and none of them is a verdict."""

from __future__ import annotations

import json
from pathlib import Path

from opsctl.ansible.verify import known
from opsctl.errors import OpsctlError
from opsctl.remote.fake import FakeHost

REFERENCE = json.loads((Path(__file__).parents[1] / "views" / "collect-reference.json").read_text())


def test_two_lines_each() -> None:
    found = known(FakeHost("h1", {"collect": REFERENCE, "facts": {}}), "kimi")
    at = next(n for n, line in enumerate(found) if "hicache-scheduler-memory-grows" in line)
    assert found[at].startswith("! warn ")
    assert found[at + 1].startswith("  → Watch the memory of the schedulers")


def test_a_host_that_cannot_tell_its_facts_says_why() -> None:
    host = FakeHost("h1", {"collect": REFERENCE, "facts": OpsctlError("no such folder")})
    assert known(host, "kimi") == ["no advisories: no such folder"]


def test_a_unit_of_other_hands_is_not_judged() -> None:
    service = {**REFERENCE["services"][0], "manifest": None}
    host = FakeHost("h1", {"collect": {**REFERENCE, "services": [service]}})
    assert known(host, "kimi") == []
    assert [call.verb for call in host.calls] == ["collect"]
