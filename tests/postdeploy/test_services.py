"""Every service on every host, gate by gate, and what systemd really gave to its process."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.onhost.hostfacts import parse_limits

GATES = ("unit", "drift", "ranks", "health", "generation", "reasoning", "tools", "memory")
LEAST_OPEN_FILES = 1048576


def test_services_are_found(machine: Any) -> None:
    assert machine.services, f"no service is deployed on {machine.name} (nothing in /etc/opsctl)"


@pytest.mark.parametrize("gate", GATES)
def test_gate(deployed: Any, gate: str) -> None:
    """`drift`: whether the unit is still the one that was deployed, or hands have changed it."""
    check = deployed.checks.get(gate)
    if check is None:
        pytest.skip(f"the release does not ask for {gate}")
    said = "\n".join([check["detail"], *check["evidence"]])
    if check["status"] == "inconclusive":
        pytest.skip(f"inconclusive: {said}")
    assert check["status"] == "pass", said


def test_every_rank_has_spoken(deployed: Any) -> None:
    seen = deployed.state["start"]["ranks"]
    missing = sorted(set(deployed.manifest["ranks"]) - set(seen))
    assert not missing, f"of this start nothing is logged by {', '.join(missing)}"


def test_host_pools_are_equal(deployed: Any) -> None:
    """Ranks whose pools differ were not given the same memory."""
    if not deployed.manifest["flags"].get("enable-hierarchical-cache"):
        pytest.skip("the service has no host tier")
    ranks = deployed.state["start"]["ranks"]
    pools = {
        rank: sorted((pool["name"], pool["bytes"]) for pool in facts["host_pools"])
        for rank, facts in ranks.items()
    }
    assert set(pools) >= set(deployed.manifest["ranks"])
    assert all(pools.values()), f"no host pool logged: {pools}"
    assert len(set(map(str, pools.values()))) == 1, f"pools differ by rank: {pools}"


def test_the_running_release_is_the_confirmed_one(deployed: Any) -> None:
    release = deployed.state["release"]
    assert release["running"] == release["confirmed"]
    assert release["pending"] is None


def test_limits_of_the_process(deployed: Any) -> None:
    """What the kernel enforces, not what the unit says."""
    pid = deployed.state["main_pid"]
    assert pid, f"{deployed.service} has no process"
    said = parse_limits(deployed.machine.run("cat", f"/proc/{pid}/limits"))
    soft = {name: limits[0] for name, limits in said.items()}  # None: unlimited
    if not may_raise_limits(deployed.machine.run("cat", "/proc/1/status")):
        pytest.skip("a container whose systemd may not raise limits (no CAP_SYS_RESOURCE)")
    assert soft["Max locked memory"] is None
    assert soft["Max core file size"] == 0
    files = soft["Max open files"]
    assert files is None or files >= LEAST_OPEN_FILES


def may_raise_limits(status: str) -> bool:
    """Bit 24 of the bounding set in /proc/1/status (CAP_SYS_RESOURCE, capability(7))."""
    bounds = next(line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:"))
    return bool(int(bounds, 16) >> 24 & 1)


def test_secrets_are_for_root_alone(deployed: Any) -> None:
    found = deployed.machine.run(
        "find", deployed.releases, "-path", "*/secrets*", "-printf", "%m %U %y %p\n"
    )
    wrong = [
        line
        for line in found.splitlines()
        if line.split(" ", 3)[:3] not in (["600", "0", "f"], ["700", "0", "d"])
    ]
    assert not wrong, "mode, owner, kind, path: " + "; ".join(wrong)
