"""The guard on real hosts with a real systemd, around a small stand-in engine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "guarding", Path(__file__).resolve().parent / "guarding.py"
)
assert _spec is not None and _spec.loader is not None
guarding = importlib.util.module_from_spec(_spec)
sys.modules["guarding"] = guarding
_spec.loader.exec_module(guarding)

pytestmark = pytest.mark.lab

GOOD, BETTER = guarding.release(word="one"), guarding.release(word="two")
UNIT = "sglang-kimi.service"


def staged(host: Any, release: dict[str, Any]) -> str:
    guarding.call(host, "stage", stdin=release)
    return str(release["digest"])


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    guarding.prepare(lab_host)
    return lab_host


@pytest.fixture
def deployed(host: Any) -> Any:
    """The good release is confirmed and serves, whatever the test before has left."""
    seen = guarding.state(host)
    digest = GOOD["digest"]
    if seen["release"]["confirmed"] != digest or seen["state"] != "active":
        staged(host, GOOD)
        run = f"r{time.time():.3f}"
        guarding.begin(host, run, "swap", digest)
        assert guarding.result(host, run)["outcome"] in ("confirmed", "unchanged")
    return host


def test_a_first_deployment_that_fails_is_stopped_and_not_started_at_boot(host: Any) -> None:
    digest = staged(host, guarding.release("crash"))
    guarding.begin(host, "first", "swap", digest)
    result = guarding.result(host, "first")
    assert result["outcome"] == "failed"
    assert "nothing was ever confirmed here" in result["cause"]
    assert any("CUDA out of memory" in line for line in result["log"])
    assert host.sh(f"systemctl is-enabled {UNIT}", check=False).stdout.strip() == "disabled"
    assert guarding.state(host)["state"] in ("inactive", "failed")


def test_a_good_release_is_confirmed_though_the_connection_is_gone(host: Any) -> None:
    digest = staged(host, GOOD)
    guarding.begin(host, "good", "swap", digest)  # its SSH session has ended when this returns
    result = guarding.result(host, "good")
    assert result["outcome"] == "confirmed", result
    ids = ["unit", "ranks", "health", "generation", "reasoning", "tools", "memory", "soak"]
    assert [c["id"] for c in result["checks"]] == ids
    assert {c["status"] for c in result["checks"]} == {"pass"}, result["checks"]
    seen = guarding.serving(host, digest)
    assert list(seen["start"]["ranks"]) == ["TP0", "TP1"]
    timers = host.sh("systemctl list-timers --all --no-legend 'opsctl-*'").stdout
    assert timers.strip() == ""
    assert host.sh("systemctl is-enabled opsctl-recover.service").stdout.strip() == "enabled"


def test_the_same_release_again_touches_nothing(deployed: Any) -> None:
    before = guarding.state(deployed)["invocation"]
    assert guarding.call(deployed, "stage", "--check", stdin=GOOD)["changed"] is False
    guarding.begin(deployed, "same", "swap", GOOD["digest"])
    assert guarding.result(deployed, "same")["outcome"] == "unchanged"
    assert guarding.state(deployed)["invocation"] == before


@pytest.mark.parametrize(
    ("fault", "gate", "words"),
    [
        ("crash", "unit", "CUDA out of memory"),
        ("silent-rank", "ranks", "TP1 missing"),
        ("tools-unparsed", "tools", "no tool call was parsed"),
        ("generation-hangs", "generation", "no whole answer within 8 s"),
        ("dies-when-asked", "generation", "the engine ended"),
    ],
)
def test_a_bad_release_is_rolled_back_with_its_cause(
    deployed: Any, fault: str, gate: str, words: str
) -> None:
    digest = staged(deployed, guarding.release(fault))
    run = f"bad-{fault}"
    guarding.begin(deployed, run, "swap", digest)
    result = guarding.result(deployed, run)
    assert (result["outcome"], result["release"]) == ("rolled_back", GOOD["digest"]), result
    assert result["cause"].startswith(f"{gate}: ") and words in result["cause"]
    guarding.serving(deployed, GOOD["digest"])


def test_a_crash_is_told_at_once_and_not_after_systemds_own_restart(deployed: Any) -> None:
    """RestartSec is 30 s there: the whole run, with the restore, ends well before."""
    digest = staged(deployed, guarding.release("crash", word="quick"))
    guarding.begin(deployed, "quick", "swap", digest)
    result = guarding.result(deployed, "quick")
    assert result["outcome"] == "rolled_back" and result["seconds"] < 20


def test_a_restart_is_gated_and_confirmed(deployed: Any) -> None:
    before = guarding.state(deployed)["invocation"]
    guarding.begin(deployed, "again", "restart")
    assert guarding.result(deployed, "again")["outcome"] == "confirmed"
    assert guarding.serving(deployed, GOOD["digest"])["invocation"] != before


def test_rollback_goes_back_and_forth(deployed: Any) -> None:
    digest = staged(deployed, BETTER)
    guarding.begin(deployed, "on", "swap", digest)
    assert guarding.result(deployed, "on")["outcome"] == "confirmed"
    guarding.begin(deployed, "back", "rollback")
    assert guarding.result(deployed, "back")["release"] == GOOD["digest"]
    guarding.serving(deployed, GOOD["digest"])


def test_a_killed_guard_is_run_again_and_finishes(deployed: Any) -> None:
    digest = staged(deployed, guarding.release(loading=6, word="slow"))
    watch = {"every": 1.0, "stale": 5.0}
    guarding.begin(deployed, "killed", "swap", digest, watch=watch)
    time.sleep(3)
    deployed.sh("systemctl kill --signal=KILL opsctl-guard-kimi.service")
    started = deployed.sh(f"systemctl show -p InvocationID --value {UNIT}").stdout.strip()
    result = guarding.result(deployed, "killed")
    assert (result["outcome"], result["release"]) == ("confirmed", digest), result
    # It went on with the start that was under way, and did not begin another.
    assert guarding.serving(deployed, digest)["invocation"] == started


def test_a_guard_that_dies_twice_makes_the_dead_man_restore(deployed: Any) -> None:
    digest = staged(deployed, guarding.release("hang", word="twice"))
    watch = {"every": 1.0, "stale": 3.0}
    guarding.begin(deployed, "twice", "swap", digest, watch=watch)
    # Frozen, not killed: only the heartbeat tells.
    deployed.sh(
        "for n in 1 2; do for i in $(seq 100); do "
        "p=$(systemctl show -p MainPID --value opsctl-guard-kimi.service); "
        '[ "$p" != 0 ] && [ "$p" != "$old" ] && break; sleep 0.2; done; '
        "sleep 1.5; kill -STOP $p; old=$p; done"
    )
    result = guarding.result(deployed, "twice")
    assert (result["outcome"], result["release"]) == ("rolled_back", GOOD["digest"]), result
    assert "died twice" in result["cause"]
    guarding.serving(deployed, GOOD["digest"])


@pytest.mark.parametrize(("how", "after"), [("kill", 0.3), ("kill", 3.0), ("stop", 3.0)])
def test_a_power_cut_or_reboot_during_a_swap_ends_with_the_confirmed_release(
    deployed: Any, how: str, after: float
) -> None:
    digest = staged(deployed, guarding.release(loading=8, word=f"{how} {after}"))
    run = f"{how}-{after}"
    guarding.begin(deployed, run, "swap", digest)
    time.sleep(after)
    deployed.lab(how)
    deployed.lab("start")
    result = guarding.result(deployed, run)
    assert result["outcome"] in ("rolled_back", "failed"), result  # failed: not even begun
    assert result["release"] == GOOD["digest"]
    assert "lost power" in result["cause"]
    guarding.serving(deployed, GOOD["digest"])


@pytest.mark.parametrize("verb", [("follow", "kimi", "good"), ("logs", "kimi", "--follow")])
def test_what_flows_ends_within_two_seconds_of_the_connection(
    deployed: Any, verb: tuple[str, ...]
) -> None:
    """Also while nobody reads: the first lines are never taken, and the pipe is made full."""
    run = deployed.sh("ls -t /var/lib/opsctl/kimi/runs | tail -1").stdout.strip()
    path = f"/var/lib/opsctl/kimi/runs/{run}/events.jsonl"
    if verb[0] == "follow":
        verb = ("follow", "kimi", "endless")
        deployed.sh(
            "d=/var/lib/opsctl/kimi/runs/endless; mkdir -p $d; echo '{}' > $d/run.json; "
            f'yes "$(head -1 {path})" | head -60000 > $d/events.jsonl'
        )
    else:
        deployed.sh("seq 40000 | systemd-cat -t noise; journalctl --sync")
        verb = ("logs", "kimi", "--follow", "--all-starts", "--lines", "0")
    pattern = f"[o]nhost.__main__.*{verb[0]} kimi"
    process = subprocess.Popen(
        guarding.ssh(deployed, guarding.command(*verb)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(guarding.bundle.build())
    process.stdin.flush()
    time.sleep(2)
    assert deployed.sh(f"pgrep -fc '{pattern}'", check=False).stdout.strip() != "0"
    process.kill()
    process.wait()
    time.sleep(2)
    assert deployed.sh(f"pgrep -fa '{pattern}'", check=False).stdout == ""
    assert deployed.sh("pgrep -a journalctl", check=False).stdout == ""
    deployed.sh("rm -rf /var/lib/opsctl/kimi/runs/endless")


def test_a_hand_made_unit_is_kept_and_restored_with_its_dropins(lab_hosts: Any) -> None:
    host = lab_hosts[1]
    guarding.prepare(host)
    host.put(
        f"/etc/systemd/system/{UNIT}",
        f"[Service]\nExecStart=/usr/bin/python3 {guarding.ENGINE} 31000 none\n"
        "[Install]\nWantedBy=multi-user.target\n# sglang\n".encode(),
    )
    host.put(f"/etc/systemd/system/{UNIT}.d/nice.conf", b"[Service]\nNice=7\n")
    host.sh(f"systemctl daemon-reload && systemctl enable --now {UNIT}")
    assert guarding.state(host)["release"]["running"] == "0"
    bad = staged(host, guarding.release("tools-unparsed"))
    guarding.begin(host, "r1", "swap", bad)
    result = guarding.result(host, "r1")
    assert (result["outcome"], result["release"]) == ("rolled_back", "0"), result
    assert host.sh(f"systemctl show -p Nice --value {UNIT}").stdout.strip() == "7"
    guarding.begin(host, "r2", "swap", staged(host, GOOD))
    assert guarding.result(host, "r2")["outcome"] == "confirmed"
    assert host.sh(f"systemctl show -p Nice --value {UNIT}").stdout.strip() == "0"
    guarding.begin(host, "r3", "rollback")
    assert guarding.result(host, "r3")["release"] == "0"
    assert host.sh(f"systemctl show -p Nice --value {UNIT}").stdout.strip() == "7"


def test_the_lock_keeps_others_out_and_tells_of_whom(deployed: Any) -> None:
    mine = ("--owner", "ann", "--reason", "new ratio", "--run", "ann-1")
    held = guarding.call(deployed, "lock", "kimi", *mine, check=False)
    if "held" in held:
        guarding.call(deployed, "unlock", "kimi", "--run", held["held"]["run"])
        guarding.call(deployed, "lock", "kimi", *mine)
    other = ("--owner", "bob", "--reason", "x", "--run", "bob-1")
    told = guarding.call(deployed, "lock", "kimi", *other, check=False)["held"]
    assert (told["owner"], told["reason"], told["run"]) == ("ann", "new ratio", "ann-1")
    document = {"run": "bob-1", "op": "restart", "service": "kimi", "target": None}
    refused = guarding.call(deployed, "launch", "kimi", stdin=document, check=False)
    assert refused["held"]["owner"] == "ann"
    guarding.call(deployed, "unlock", "kimi", "--run", "ann-1")
