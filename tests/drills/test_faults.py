"""Each of the eight faults, deployed on a real host: the gate that sees it, its evidence, the end.

A good release (ratio 2.0) is confirmed first; the change to ratio 4.0 then meets the fault. At the
end the good release must serve again. Writes docs/faults.md from what was seen.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opsctl import lab
from opsctl.lab import inventory, shell
from opsctl.rehearsal.scenario import packaged

pytestmark = [pytest.mark.drill, pytest.mark.lab, pytest.mark.timeout(900)]

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "faults.md"
BIN = Path(sys.executable).parent
# fault → the gate that must fail, and the words that must be in what it says
SEEN_BY = {
    "silent-rank": ("ranks", "TP5 missing"),
    "odd-rank": ("ranks", "TP6 151,200; the others 159,277"),
    "host-memory-refused": ("unit", "Requesting 44.77 GB but only have 39.03 GB free"),
    "crash-at-graphs": ("unit", "CUDA out of memory. Tried to allocate 448.00 MiB"),
    "hang-in-loading": ("start", "no progress for 8 s"),
    "health-200-but-generation-hangs": ("generation", "no whole answer within 10 s"),
    "empty-reasoning": ("reasoning", "reasoning_content is empty"),
    "too-little-ram-after-start": ("memory", "17.56 GiB available, 32.00 GiB demanded"),
}


@dataclass
class Drill:
    host: Any
    inventory: Path
    good: str  # digest of the release with ratio 2.0
    rows: dict[str, list[str]]

    def opsctl(self, *args: str) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON of a command."""
        done = subprocess.run(
            [str(BIN / "opsctl"), "-i", str(self.inventory), "-o", "json", *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def service(self) -> dict[str, Any]:
        found: dict[str, Any] = self.opsctl("status")[1]["hosts"][0]["services"][0]
        return found


@pytest.fixture(scope="module")
def drill(lab_hosts: list[Any]) -> Iterator[Drill]:
    inventory.forget(shell.folder())
    folder = lab.up(1)
    subprocess.run(
        [str(BIN / "ansible-playbook"), "-i", str(folder), str(TOP / "playbooks" / "deploy.yml")],
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "playbooks" / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=300,
    )
    found = Drill(lab_hosts[0], folder, "", {})
    found.good = found.service()["release"]
    described = folder / "group_vars" / "kimi.yml"
    described.write_text(described.read_text().replace("hicache-ratio: 2.0", "hicache-ratio: 4.0"))
    yield found
    if set(found.rows) == set(SEEN_BY):
        PAGE.write_text(page(found.rows))


@pytest.mark.parametrize("fault", SEEN_BY)
def test_a_fault_is_seen_and_the_good_release_serves_again(drill: Drill, fault: str) -> None:
    gate, words = SEEN_BY[fault]
    lab.scenario("h1", fault)
    code, answer = drill.opsctl("deploy", "--yes", "--reason", fault)
    result = answer["results"][0]
    assert (code, result["outcome"], result["release"]) == (5, "rolled_back", drill.good)
    failed = [check for check in result["checks"] if check["status"] == "fail"]
    assert [check["id"] for check in failed] == [gate]
    assert words in failed[0]["detail"] + " ".join(failed[0]["evidence"])

    service = drill.service()
    assert (service["state"], service["health"]) == ("active", "ok")
    assert service["release"] == drill.good
    assert {pool["bytes"] for pool in service["host_pools"]} == {22_390_000_000}
    code, verified = drill.opsctl("verify")
    assert (code, verified["ok"]) == (0, True)
    drill.rows[fault] = row(fault, failed[0], drill.host)


def row(fault: str, check: dict[str, Any], host: Any) -> list[str]:
    free = host.sh("free -h").stdout.splitlines()[1].split()
    end = f"ratio 2.0 serves again, verified; {free[2]} used, {free[-1]} available"
    # Lines of the ranks that the message names, if it names any; without the time of day.
    named = [line for line in check["evidence"] if line.split(":")[0] in check["detail"]]
    evidence = [
        re.sub(r"^\[\d{4}[\d: -]{15} ?", "[", line).removeprefix("[] ")
        for line in (named or check["evidence"])[:3]
    ]
    return [fault, check["id"], "<br>".join(map(code_of, evidence)), code_of(check["detail"]), end]


def code_of(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|") + "`"


def page(rows: dict[str, list[str]]) -> str:
    """docs/faults.md. What a fault is stands in its scenario's first comment."""
    lines = [
        "# Eight faults, and what opsctl does about them",
        "",
        "Written by `make drills` (tests/drills/test_faults.py) from what was seen on a real host",
        "with the rehearsal engine. The change was always the same: `hicache-ratio` 2.0 → 4.0; the",
        "release with 2.0 was confirmed before. Every deploy ended with exit code 5: rolled back.",
        "",
        "| fault | gate that failed | evidence | message | end state |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(rows[fault]) + " |" for fault in SEEN_BY),
        "",
        "What each fault is:",
        "",
        *(f"* **{fault}**: {told(fault)}" for fault in SEEN_BY),
    ]
    return "\n".join(lines) + "\n"


def told(fault: str) -> str:
    text = packaged()[fault].read_text().splitlines()
    return " ".join(line.removeprefix("# ") for line in text if line.startswith("# "))
