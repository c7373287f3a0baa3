"""From a hand-made unit to opsctl without a restart, and back; on hosts with the stand-in engine.

The tests build on each other, as an operator's day does. h1 has a unit with a drop-in and a file of
variables; h2 has a process that somebody started in a login.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import rehearse
from opsctl.rehearsal import wheel
from tests.lab.test_playbooks import _tool, reached

pytestmark = pytest.mark.lab

KEY = "sk-CANARY-5e1f0c77"
ROOT = "/opt/sglang/0.5.9"
COMMAND = (
    f"{ROOT}/bin/python -m sglang.launch_server --model-path /srv/models/Kimi-K2.5 "
    "--served-model-name kimi-k2.5 --tp 8 --mem-fraction-static 0.88 --trust-remote-code "
    "--reasoning-parser kimi_k2 --tool-call-parser=kimi_k2 --speculative-algorithm EAGLE3 "
    "--speculative-draft-model-path /srv/models/kimi-k2.5-eagle3 --speculative-eagle-topk 1 "
    "--speculative-num-steps 3 --speculative-num-draft-tokens 4 --enable-hierarchical-cache "
    "--hicache-ratio 2 --hicache-write-policy write_through --hicache-io-backend kernel "
)
UNIT = f"""\
# by hand
[Service]
EnvironmentFile=/etc/kimi.env
ExecStart={COMMAND} --api-key ${{KEY}}
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
DROPIN = "[Service]\nEnvironment=SGLANG_ENABLE_SPEC_V2=1\nLimitNOFILE=4096\n"
# What an import cannot know: how patient this host's gates are. The stand-in's clock is short.
QUICK = {
    "gates": {"soak": "1s", "poll": "0.2s", "request_timeout": "10s"},
    "timing": {"drain": "10s", "stall": "8s", "cap": "60s"},
}
SERVED = (
    "for i in $(seq 150); do curl -fsS -o /dev/null http://127.0.0.1:30000/health 2>/dev/null && "
    "exit 0; sleep 0.2; done; exit 1"
)
UNIT_PATH = "/etc/systemd/system/sglang-kimi.service"


@dataclass
class Day:
    """The hosts and the inventory that grows as the day goes on."""

    hosts: dict[str, Any]
    inventory: Path

    def opsctl(self, *words: str, ends: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [_tool("opsctl"), *words],
            env={**os.environ, "OPSCTL_INVENTORY": str(self.inventory), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == ends, done.stdout + done.stderr
        assert KEY not in done.stdout + done.stderr
        return done

    def step(self) -> dict[str, Any]:
        (found,) = json.loads(self.opsctl("plan", "--limit", "h1", "-o", "json").stdout)["steps"]
        step: dict[str, Any] = found
        return step

    def show(self, name: str) -> str:
        said: str = self.hosts["h1"].sh(f"systemctl show -P {name} sglang-kimi.service").stdout
        return said.strip()

    def process(self) -> tuple[str, str]:
        return self.show("MainPID"), self.show("InvocationID")

    def served(self) -> None:
        """Waits until it answers."""
        self.hosts["h1"].sh(SERVED)

    def override(self, **more: Any) -> None:
        path = self.inventory / "host_vars" / "h1.yml"
        path.write_text(yaml.safe_dump({"sglang_overrides": {"kimi": {**QUICK, **more}}}))


@pytest.fixture(scope="module")
def day(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("inventory")
    built = wheel.build("0.5.9", folder.parent / "wheels")
    (folder / "hosts.yml").write_text(yaml.safe_dump(reached(lab_hosts)))
    for name in ("host_vars", "group_vars/all"):
        (folder / name).mkdir(parents=True)
    for host in lab_hosts:
        rehearse.prepare(host.name)
        host.put("/root/sglang.whl", built.path.read_bytes())
        host.sh(
            f"useradd --system --no-create-home sglang; python3 -m venv --without-pip {ROOT} && "
            f"python3 -m zipfile -e /root/sglang.whl {ROOT}/lib/python3*/site-packages"
        )
    found = Day({host.name: host for host in lab_hosts}, folder)
    one = found.hosts["h1"]
    one.put("/etc/kimi.env", f"KEY={KEY}\nNCCL_DEBUG=WARN\n".encode(), "600")
    one.put(UNIT_PATH, UNIT.encode())
    one.put(f"{UNIT_PATH}.d/10-limits.conf", DROPIN.encode())
    one.sh("systemctl daemon-reload && systemctl enable --now sglang-kimi.service")
    found.served()
    yield found


@pytest.fixture(scope="module")
def imported(day: Day) -> dict[str, Any]:
    """The description, as it was imported."""
    place = day.inventory / "group_vars" / "all"
    out, vault = place / "services.yml", place / "vault.yml"
    done = day.opsctl("import", "--host", "h1", "--out", str(out), "--secrets-out", str(vault))
    assert "Restart=always" in done.stderr
    assert KEY not in out.read_text() and KEY in vault.read_text()
    day.override()
    found: dict[str, Any] = yaml.safe_load(out.read_text())["sglang_services"]["kimi"]
    return found


def test_what_runs_is_described(imported: dict[str, Any]) -> None:
    assert imported["engine"]["version"] == "0.5.9"
    assert imported["flags"]["hicache-ratio"] == 2.0 and imported["flags"]["tp-size"] == 8
    assert imported["env"] == {"NCCL_DEBUG": "WARN", "SGLANG_ENABLE_SPEC_V2": "1"}
    assert "vault" in imported["secrets"]["api-key"]


def test_the_plan_says_that_nothing_restarts(day: Day, imported: dict[str, Any]) -> None:
    step = day.step()
    assert (step["action"], step["reason"]) == (
        "takeover", "no restart: the command line is the same",
    )  # fmt: skip
    assert "user root → sglang" in step["from_next_start"]
    assert "LimitNOFILE 4096 → 1048576" in step["from_next_start"]


def test_it_is_taken_over_as_it_runs(day: Day, imported: dict[str, Any]) -> None:
    before = day.process()
    day.opsctl("deploy", "--limit", "h1", "--yes")
    assert day.process() == before
    assert day.show("FragmentPath") == UNIT_PATH and day.show("DropInPaths") == ""
    assert day.show("Restart") == "on-failure"
    text = day.opsctl("status", "--limit", "h1").stdout
    assert "from the next start on" in text and "user root → sglang" in text
    assert not day.step()["reason"].startswith("restart")


def test_a_restart_then_uses_the_new_unit(day: Day, imported: dict[str, Any]) -> None:
    before = day.process()
    day.opsctl("restart", "kimi", "--limit", "h1", "--yes")
    assert day.process() != before
    assert day.hosts["h1"].sh(f"ps -o user= -p {day.process()[0]}").stdout.strip() == "sglang"
    assert "from the next start on" not in day.opsctl("status", "--limit", "h1").stdout


def test_release_0_comes_back_as_it_was(day: Day, imported: dict[str, Any]) -> None:
    day.opsctl("rollback", "kimi", "--limit", "h1", "--yes")
    day.served()
    host = day.hosts["h1"]
    assert host.sh(f"cat {UNIT_PATH}").stdout == UNIT
    assert host.sh(f"cat {UNIT_PATH}.d/10-limits.conf").stdout == DROPIN
    assert host.sh(f"ps -o user= -p {day.process()[0]}").stdout.strip() == "root"
    assert day.step()["reason"] == "no restart: the command line is the same"


def test_a_changed_flag_is_named_and_restarts_and_can_be_taken_back(
    day: Day, imported: dict[str, Any]
) -> None:
    day.override(flags={"hicache-ratio": 4.0}, env={"NCCL_DEBUG": "INFO"})
    before = day.process()
    step = day.step()
    assert step["action"] == "swap"
    assert step["reason"] == (
        "restart: hicache-ratio 2.0 → 4.0; env NCCL_DEBUG WARN → INFO; "
        "takes over the unit that stood here before opsctl"
    )
    day.opsctl("deploy", "--limit", "h1", "--yes")
    assert day.process() != before and "--hicache-ratio=4.0" in day.show("ExecStart")
    day.opsctl("rollback", "kimi", "--limit", "h1", "--yes")
    assert day.hosts["h1"].sh(f"cat {UNIT_PATH}").stdout == UNIT
    day.override()


def test_a_gate_that_fails_gives_the_unit_back_and_touches_nothing(
    day: Day, imported: dict[str, Any]
) -> None:
    """More memory is demanded than this host has left."""
    day.override(memory={"min_available": "440GiB"})
    before = day.process()
    done = day.opsctl("deploy", "--limit", "h1", "--yes", ends=5)
    assert "memory: " in done.stderr and "demanded by memory.min_available" in done.stderr
    assert day.process() == before
    host = day.hosts["h1"]
    assert host.sh(f"cat {UNIT_PATH}").stdout == UNIT
    assert day.show("DropInPaths") == f"{UNIT_PATH}.d/10-limits.conf"
    assert (day.show("Restart"), day.show("NeedDaemonReload")) == ("always", "no")
    day.override()


def test_an_edited_unit_is_told_and_what_runs_is_imported(day: Day) -> None:
    host = day.hosts["h1"]
    host.sh(f"sed -i 's/--hicache-ratio 2 /--hicache-ratio 3 /' {UNIT_PATH}")
    done = day.opsctl("import", "--host", "h1", "--unit", "sglang-kimi")
    host.put(UNIT_PATH, UNIT.encode())
    assert "flags.hicache-ratio: 2.0 runs, 3.0 stands in the unit" in done.stderr
    assert "its files were changed after this start" in done.stderr
    assert "hicache-ratio: 2.0" in done.stdout


def test_a_bare_process_is_found_and_told(day: Day) -> None:
    """On h2, from a login, with a port of its own; then a second one: which of them is asked."""
    host, said = day.hosts["h2"], f"{COMMAND} --port 30100 --api-key {KEY}"
    assert "no SGLang server runs on h2" in day.opsctl("import", "--host", "h2", ends=2).stderr
    host.sh(f"nohup {said} > /root/engine.log 2>&1 < /dev/null & echo $! > /root/pid; sleep 1")
    done = day.opsctl("import", "--host", "h2", "--name", "bare")
    assert "no unit looks after it" in done.stderr and "nohup" in done.stderr
    described = yaml.safe_load(done.stdout)["sglang_services"]["bare"]
    assert described["port"] == 30100 and described["engine"] == {"version": "0.5.9"}
    host.sh(f"systemd-run -q --unit=other {said.replace('30100', '30200')}; sleep 1")
    several = day.opsctl("import", "--host", "h2", ends=2).stderr
    assert "2 SGLang servers run on h2; say which" in several
    assert "--unit other.service: SGLang 0.5.9" in several and "--pid " in several
    other = day.opsctl("import", "--host", "h2", "--unit", "other")
    assert "port: 30200" in other.stdout
    host.sh("systemctl stop other; kill -9 $(cat /root/pid); sleep 1")


def test_a_unit_of_another_name_is_replaced_and_comes_back(day: Day) -> None:
    host, hand = day.hosts["h2"], "/etc/systemd/system/hand.service"
    host.put("/etc/kimi.env", f"KEY={KEY}\n".encode(), "600")
    host.put(hand, UNIT.encode())
    host.put(f"{hand}.d/10-limits.conf", DROPIN.encode())
    host.sh("systemctl daemon-reload && systemctl enable --now hand.service")
    host.sh(SERVED)
    place = day.inventory / "host_vars" / "h2"
    place.mkdir()
    vault = ("--secrets-out", str(place / "vault.yml"))
    said = day.opsctl("import", "--host", "h2", "--name", "kimi", *vault)
    assert "hand.service → sglang-kimi.service" in said.stderr
    described = yaml.safe_load(said.stdout)["sglang_services"]["kimi"]
    assert described["takes_over"] == "hand.service"
    (place / "services.yml").write_text(
        yaml.safe_dump({"sglang_services": {"kimi": {**described, **QUICK}}})
    )
    plan = day.opsctl("plan", "--limit", "h2").stdout
    assert "restart: takes over hand.service" in plan
    day.opsctl("deploy", "--limit", "h2", "--yes")
    state = "systemctl is-active hand sglang-kimi; systemctl is-enabled hand"
    assert host.sh(state, check=False).stdout.split() == ["inactive", "active", "disabled"]
    day.opsctl("rollback", "kimi", "--limit", "h2", "--yes")
    assert host.sh(f"cat {UNIT_PATH} {hand}").stdout == UNIT * 2
    assert host.sh(state, check=False).stdout.split() == ["inactive", "active", "disabled"]
    host.sh(SERVED)
