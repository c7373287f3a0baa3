"""Plan, plan file, override and the three columns of memory, on real hosts that play the reference
deployment. The tests build on each other, as an operator's day does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import inventory as lab_inventory
from opsctl.lab import rehearse
from opsctl.rehearsal import wheel
from opsctl.rehearsal.holdings import SOCKET
from tests.lab.test_playbooks import CANARY, Fleet, _tool, reached

pytestmark = pytest.mark.lab

SPARE = "5" * 64
# Of another service that is staged on the host and will take most of its memory.
PROMISED = {"ranks": ["TP0"], "expect": {"host_total": 300_000_000_000}, "flags": {}}


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The reference deployment at ratio 2.0."""
    hosts = {host.name: host for host in lab_hosts}
    folder = tmp_path_factory.mktemp("inventory")
    wheel.build("0.5.9", folder.parent / "wheels")
    (folder / "hosts.yml").write_text(yaml.safe_dump(reached(lab_hosts)))
    for name in ("group_vars", "host_vars"):
        (folder / name).mkdir()
    services = lab_inventory.SERVICES.format(version="0.5.9", wheels="../wheels")
    (folder / "group_vars" / "kimi.yml").write_text(services)
    for name in hosts:
        rehearse.prepare(name)
    found = Fleet(hosts, folder, cap=None)
    found.describe()
    found.play("deploy.yml")
    yield found


def opsctl(fleet: Fleet, *words: str, ends: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [_tool("opsctl"), *words],
        env={**os.environ, "OPSCTL_INVENTORY": str(fleet.inventory), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == ends, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    return done


def figures(step: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in step["figures"]}


def test_nothing_to_do_is_no_change(fleet: Fleet) -> None:
    opsctl(fleet, "plan", "--exit-code")


@pytest.fixture(scope="module")
def plan(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of ratio 2.0 → 4.0."""
    path = tmp_path_factory.mktemp("plans") / "ratio.json"
    fleet.describe(**{"hicache-ratio": 4.0})
    opsctl(fleet, "plan", "--exit-code", "--out", str(path), ends=3)
    return path


def test_a_plan_tells_everything_and_touches_nothing(fleet: Fleet, plan: Path) -> None:
    before, units = fleet.invocations(), fleet.units()
    said = json.loads(opsctl(fleet, "plan", "-o", "json").stdout)
    assert [(s["host"], s["action"]) for s in said["steps"]] == [("h1", "swap"), ("h2", "swap")]
    for step in said["steps"]:
        assert step["reason"] == "restart: hicache-ratio 2.0 → 4.0"
        assert "+    --hicache-ratio=4.0 \\" in step["diff"]
        found = figures(step)
        assert (found["KV tokens"]["now"], found["KV tokens"]["then"]) == (159277, 159277)
        pools = found["host pools"]
        assert (round(pools["now"] / 1e9, 2), round(pools["then"] / 1e9, 2)) == (22.39, 44.77)
        left = found["RAM left"]
        assert left["then"] / 2**30 == pytest.approx(78.6, abs=0.1)
        assert left["now"] > 2 * left["then"] and step["verdict"] == "fits"
        assert "hicache-eagle-draft-not-restored" in {a["id"] for a in step["advisories"]}
        assert step["duration"]["seconds"] > 0
        # The stand-in's clock runs fast, which no forecast knows: a cap of its own would be told.
        assert (step["cap"]["of"], step["cap"]["warning"]) == ("forecast", None)
    text = opsctl(fleet, "plan").stdout
    assert text.count("--hicache-ratio=4.0") == 1, "what two hosts share is shown once"
    assert "the same as on h1: diff" in text
    assert fleet.invocations() == before and fleet.units() == units
    for host in fleet.hosts.values():
        assert not host.sh("ls /var/lib/opsctl/kimi/lock.json", check=False).stdout


def test_the_plan_file_is_for_its_owner_and_holds_no_secret(plan: Path) -> None:
    assert plan.stat().st_mode & 0o777 == 0o600
    assert CANARY not in plan.read_text()


def test_a_stale_plan_is_refused_and_tells_what_has_changed(fleet: Fleet, plan: Path) -> None:
    before = fleet.invocations()
    other = fleet.inventory / "host_vars" / "h2.yml"
    other.write_text("sglang_overrides: {kimi: {flags: {hicache-ratio: 3.0}}}\n")
    done = opsctl(fleet, "deploy", str(plan), "--yes", ends=3)
    other.unlink()
    assert "description of kimi on h2: hicache-ratio 4.0 → 3.0" in done.stderr
    assert "on h1" not in done.stderr
    folder = "/etc/systemd/system/sglang-kimi.service.d"
    hand = f"mkdir {folder} && printf '[Service]\\nNice=1\\n' > {folder}/9-hand.conf"
    fleet.hosts["h1"].sh(f"{hand} && systemctl daemon-reload")
    done = opsctl(fleet, "deploy", str(plan), "--yes", ends=3)
    fleet.hosts["h1"].sh(f"rm -r {folder} && systemctl daemon-reload")
    assert "on h1 drop-ins of kimi: none → " in done.stderr and "9-hand.conf" in done.stderr
    assert fleet.invocations() == before


def test_an_unreachable_host_is_told_and_so_are_the_others(fleet: Fleet, plan: Path) -> None:
    fleet.hosts["h2"].lab("cut", "reject")
    try:
        done = opsctl(fleet, "plan", ends=4)
        refused = opsctl(fleet, "deploy", str(plan), "--yes", ends=4)
    finally:
        fleet.hosts["h2"].lab("mend")
    assert "h1 kimi: restart: hicache-ratio 2.0 → 4.0" in done.stdout
    assert "h2: cannot be planned: " in done.stdout
    assert "h1 kimi: restart" in refused.stderr


def test_a_fresh_plan_is_carried_out_once(fleet: Fleet, plan: Path) -> None:
    opsctl(fleet, "deploy", str(plan), ends=2)  # nobody was asked
    done = opsctl(fleet, "deploy", str(plan), "--yes", "-o", "json")
    assert {r["outcome"] for r in json.loads(done.stdout)["results"]} == {"confirmed"}
    done = opsctl(fleet, "deploy", str(plan), "--yes", ends=3)
    assert "on h1, h2 kimi has release " in done.stderr
    opsctl(fleet, "plan", "--exit-code")


def test_a_rollback_tells_what_it_will_do(fleet: Fleet) -> None:
    before = fleet.invocations()
    said = json.loads(opsctl(fleet, "rollback", "--dry-run", "-o", "json").stdout)
    assert [(s["host"], s["action"]) for s in said["steps"]] == [
        ("h1", "rollback"),
        ("h2", "rollback"),
    ]
    for step in said["steps"]:
        assert step["why"] == ["hicache-ratio 4.0 → 2.0"]
        assert "+    --hicache-ratio=2.0 \\" in step["diff"]
        pools = figures(step)["host pools"]
        assert (round(pools["now"] / 1e9, 2), round(pools["then"] / 1e9, 2)) == (44.77, 22.39)
        assert step["verdict"] == "fits" and step["duration"]["seconds"] > 0
    same = json.loads(opsctl(fleet, "restart", "--dry-run", "-o", "json").stdout)["steps"]
    assert [(s["diff"], s["why"], s["verdict"]) for s in same] == [([], [], "fits")] * 2
    assert fleet.invocations() == before


def test_a_plan_that_was_rolled_back_is_not_carried_out_again(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "again.json"
    fleet.describe(**{"hicache-ratio": 2.0})
    opsctl(fleet, "plan", "--limit", "h1", "--out", str(path))
    opsctl(fleet, "deploy", str(path), "--yes")
    opsctl(fleet, "rollback", "--limit", "h1", "--yes")
    done = opsctl(fleet, "deploy", str(path), "--yes", ends=3)
    assert "on h1 kimi has been through rollback of " in done.stderr
    assert "next: opsctl plan --limit h1 --out " in done.stderr
    fleet.describe(**{"hicache-ratio": 4.0})


def test_memory_in_three_columns(fleet: Fleet) -> None:
    said = json.loads(opsctl(fleet, "memory", "-o", "json").stdout)
    assert said["ok"] and [h["host"] for h in said["hosts"]] == ["h1", "h2"]
    for host in said["hosts"]:
        (service,) = host["services"]
        assert [r["rank"] for r in service["ranks"]] == [f"TP{n}" for n in range(8)]
        assert [r["gpu"] for r in service["ranks"]] == list(range(8))
        for rank in service["ranks"]:
            found = {f["name"]: f for f in rank["figures"]}
            tokens, pool = found["KV tokens"], found["host pool"]
            assert (tokens["forecast"], tokens["logged"]) == (159277, 159277)
            assert pool["forecast"] == 637109 * 70272 and pool["logged"] == 44_770_000_000
            named = sum(
                found[name]["logged"]
                for name in ("KV cache", "weights", "pool draft", "draft weights")
            )
            # what the scenario's card has in use, and what of it no line of the log names
            assert found["GPU used"]["shown"] == named + found["the rest"]["shown"]
            assert 2 < found["the rest"]["shown"] / 2**30 < 3
        left = next(f for f in service["host"] if f["name"] == "RAM left")
        assert left["forecast"] / 2**30 == pytest.approx(78.6, abs=0.1)
        assert round(left["shown"] / 2**30) == 79
        assert service["check"]["status"] == "pass"
        told = " ".join(service["explained"])
        assert "44.77 GB are 41.70 GiB" in told
        assert "outside of mem-fraction-static: 0.5.9 sizes its pools before" in told
    text = opsctl(fleet, "memory", "--limit", "h1").stdout
    assert "h1 kimi: release " in text and "8 of 8 ranks, as forecast" in text


CRASHES = """\
base = "reference"
name = "crashes-at-ratio-2"

[fault]
kind = "crash-at-graphs"
when = { hicache-ratio = 2.0 }
rank = "TP7"
message = "CUDA out of memory."
"""
STRANGERS = f"""
systemd-run -q --unit=web python3 -m http.server 30000
systemd-run -q --unit=left python3 -c '
import json, socket, time
held = socket.socket(socket.AF_UNIX)
held.connect("{SOCKET}")
held.sendall(json.dumps({{"gpu": 3, "gpu_mib": 70000, "host_kb": 0}}).encode() + b"\\n")
time.sleep(600)'
for _ in $(seq 50); do
    nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -q . && ss -ltn |
        grep -q :30000 && exit; sleep 0.1; done; exit 1
"""


def left(fleet: Fleet) -> float:
    """GiB of RAM that the forecast says are left on h1."""
    said = json.loads(opsctl(fleet, "forecast", "kimi", "--limit", "h1", "-o", "json").stdout)
    return float(said["forecasts"][0]["host"]["available_after_gib"])


def test_a_rollback_and_a_hands_restart_leave_the_forecast_as_it_was(fleet: Fleet) -> None:
    """What runs then was started by no deployment: its processes are known all the same."""
    host, before = fleet.hosts["h1"], left(fleet)
    rehearse.play("h1", CRASHES)
    fleet.describe(**{"hicache-ratio": 2.0})
    opsctl(fleet, "deploy", "--yes", "--limit", "h1", ends=5)
    fleet.describe(**{"hicache-ratio": 4.0})
    assert left(fleet) == pytest.approx(before, abs=0.2)
    count = host.sh("ls /var/lib/opsctl/kimi/starts | wc -l").stdout
    # a start that nobody recorded
    host.sh(
        "systemctl restart sglang-kimi; for _ in $(seq 60); do "
        "curl -sf http://127.0.0.1:30000/health && exit; sleep 0.5; done; exit 1"
    )
    assert host.sh("ls /var/lib/opsctl/kimi/starts | wc -l").stdout == count
    assert left(fleet) == pytest.approx(before, abs=0.2)
    rehearse.play("h1", rehearse.REFERENCE.read_text())


def test_a_plan_tells_what_a_deployment_of_what_is_down_is_refused_for(fleet: Fleet) -> None:
    host = fleet.hosts["h1"]
    opsctl(fleet, "stop", "kimi", "--limit", "h1", "--yes")
    host.sh(STRANGERS)
    told = opsctl(fleet, "plan", "--limit", "h1", ends=1)
    refused = opsctl(fleet, "deploy", "--limit", "h1", "--yes", ends=1)
    guard = opsctl(fleet, "start", "kimi", "--limit", "h1", "--yes", ends=1)
    host.sh("systemctl stop web left")
    for words in ("port 30000 is held by PID ", "68.36 GiB of GPU 3 are held by PID "):
        assert words in told.stdout and words in refused.stderr and words in guard.stderr
    assert "h1 kimi: start: the unit is inactive" in told.stdout
    opsctl(fleet, "start", "kimi", "--limit", "h1", "--yes")


def promised(fleet: Fleet) -> None:
    """Another service on both hosts has been promised the memory."""
    folder = f"/etc/opsctl/spare/releases/{SPARE}"
    for host in fleet.hosts.values():
        host.put(f"{folder}/release.json", json.dumps(PROMISED).encode())
        host.put(f"{folder}/sglang-spare.service", b"[Unit]\n")


def test_what_does_not_fit_needs_a_reason_and_the_reason_stays(fleet: Fleet) -> None:
    promised(fleet)
    fleet.describe(**{"hicache-ratio": 2.0})
    before = fleet.invocations()
    done = opsctl(fleet, "plan", "--out", str(fleet.inventory / "no.json"), ends=8)
    assert not (fleet.inventory / "no.json").exists()
    assert "error: h1, h2, kimi: the forecast says that it does not fit" in done.stderr
    kept = "are kept for spare: it is staged and was never started"
    assert kept in done.stderr
    opsctl(fleet, "deploy", "--yes", ends=8)
    failed = fleet.tried("deploy.yml", "--limit", "h2")
    assert failed.returncode != 0
    assert "the forecast says that it does not fit" in failed.stdout
    assert "TASK [Restart what has changed" not in failed.stdout
    assert fleet.invocations() == before

    why = "spare stays off"
    opsctl(fleet, "deploy", "--yes", "--limit", "h1", "--override-forecast", why)
    fleet.play("deploy.yml", "--limit", "h2", "-e", f'{{"service_override": "{why}"}}')
    for host in fleet.hosts.values():
        history = host.sh("tail -n 1 /var/lib/opsctl/kimi/history.jsonl").stdout
        last = json.loads(history)
        assert last["outcome"] == "confirmed"
        assert f"forecast overridden: {why}" in last["reason"]
        release = f"/etc/opsctl/kimi/releases/{last['release']}/release.json"
        assert json.loads(host.sh(f"cat {release}").stdout)["expect"]["override"] == why
    assert opsctl(fleet, "status").stdout.count(f"overridden: {why}") == 2
    assert f"overridden: {why}" in opsctl(fleet, "verify", "--limit", "h1").stdout
    # recorded once, the same release needs no reason again
    opsctl(fleet, "plan", "--exit-code")
    assert "changed=0" in fleet.play("deploy.yml", "--limit", "h2")
