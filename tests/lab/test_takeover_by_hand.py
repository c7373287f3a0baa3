"""From a hand-made unit to opsctl without a restart, and back; on hosts with the stand-in engine.

The tests build on each other, as an operator's day does. h1 has a unit with a drop-in and a file of
variables; h2 has a unit of another name, and a process that somebody started in a login. One rank
of a tiny model: what is tried here is who runs the engine, and not its size.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import rehearse, shell
from opsctl.paths import share
from opsctl.rehearsal import wheel
from tests.lab.test_playbooks import _tool, recap, told

pytestmark = pytest.mark.lab

KEY = "sk-CANARY-5e1f0c77"
ROOT = "/opt/sglang/0.5.9"
# The small scenario, ended as 0.5.9 ends: by a SIGKILL of its own after every drain.
SMALL = rehearse.PACKAGE / "rehearsal/scenarios/small-0.5.23.toml"
COMMAND = (
    f"{ROOT}/bin/python -m sglang.launch_server --model-path /srv/models/tiny-llama "
    "--served-model-name tiny --tp 1 --mem-fraction-static=0.3 --max-total-tokens 4096 "
)
UNIT = f"""\
# by hand
[Service]
EnvironmentFile=/etc/kimi.env
ExecStart={COMMAND} --watchdog-timeout 300 --api-key ${{KEY}}
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
    "for i in $(seq 300); do curl -fsS -o /dev/null http://127.0.0.1:30000/health 2>/dev/null && "
    "exit 0; sleep 0.1; done; exit 1"
)
SETTLED = (
    "for i in $(seq 300); do [ ! -e /var/lib/opsctl/kimi/pending.json ] && exit 0; sleep 0.1; "
    "done; exit 1"
)
UNIT_PATH = "/etc/systemd/system/sglang-kimi.service"
SAME = "no restart: the command line is the same"


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

    def play(self, name: str, *more: str) -> str:
        """A playbook that must end well, on h1; its output."""
        done = subprocess.run(
            [_tool("ansible-playbook"), "-i", str(self.inventory), name, "--limit", "h1", *more],
            cwd=share() / "playbooks",
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert KEY not in done.stdout + done.stderr
        return done.stdout

    def step(self, host: str = "h1", ends: int = 0) -> dict[str, Any]:
        said = self.opsctl("plan", "--limit", host, "-o", "json", ends=ends).stdout
        (found,) = json.loads(said)["steps"]
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

    def stands(self) -> None:
        """The unit as it was made by hand."""
        host = self.hosts["h1"]
        assert host.sh(f"cat {UNIT_PATH}").stdout == UNIT
        assert host.sh(f"cat {UNIT_PATH}.d/10-limits.conf").stdout == DROPIN
        assert self.show("DropInPaths") == f"{UNIT_PATH}.d/10-limits.conf"
        assert (self.show("Restart"), self.show("NeedDaemonReload")) == ("always", "no")
        assert host.sh(f"ps -o user= -p {self.process()[0]}").stdout.strip() == "root"

    def override(self, **more: Any) -> None:
        path = self.inventory / "host_vars" / "h1.yml"
        path.write_text(yaml.safe_dump({"sglang_overrides": {"kimi": {**QUICK, **more}}}))


def reached(hosts: list[Any]) -> dict[str, Any]:
    """An inventory's hosts, reached as root."""
    return {"kimi": {"hosts": {host.name: host.login for host in hosts}}}


@pytest.fixture(scope="module")
def day(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("inventory")
    built = wheel.build("0.5.9", folder.parent / "wheels")
    scenario = folder.parent / "small.toml"
    scenario.write_text(SMALL.read_text().replace('engine = "0.5.23"', 'engine = "0.5.9"'))
    (folder / "hosts.yml").write_text(yaml.safe_dump(reached(lab_hosts)))
    for name in ("host_vars", "group_vars/all"):
        (folder / name).mkdir(parents=True)
    for host in lab_hosts:
        rehearse.prepare(host.name, scenario)
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
    assert imported["flags"]["max-total-tokens"] == 4096 and imported["flags"]["tp-size"] == 1
    assert imported["env"] == {"NCCL_DEBUG": "WARN", "SGLANG_ENABLE_SPEC_V2": "1"}
    assert "vault" in imported["secrets"]["api-key"]


def test_the_plan_says_what_restarts_and_what_does_not(day: Day, imported: dict[str, Any]) -> None:
    step = day.step()
    assert (step["action"], step["reason"]) == ("takeover", SAME)
    assert "user root → sglang" in step["from_next_start"]
    assert "LimitNOFILE 4096 → 1048576" in step["from_next_start"]
    day.override(flags={"watchdog-timeout": 600}, env={"NCCL_DEBUG": "INFO"})
    step = day.step()
    day.override()
    assert (step["action"], step["reason"]) == (
        "swap",
        "restart: watchdog-timeout 300.0 → 600.0; env NCCL_DEBUG WARN → INFO; "
        "takes over the unit that stood here before opsctl",
    )


def test_deploy_yml_takes_it_over_as_it_runs(day: Day, imported: dict[str, Any]) -> None:
    """What --check --diff said before is what the run then did, and neither touched the engine."""
    before = day.process()
    foretold = day.play("deploy.yml", "--check", "--diff")
    assert f"h1 kimi: {SAME}" in foretold and "from the next start on: user root" in foretold
    day.stands()
    assert day.hosts["h1"].sh("ls /etc/opsctl /var/lib/opsctl", check=False).returncode
    done = day.play("deploy.yml", "--diff")
    assert "h1 kimi: confirmed, release" in done and f"h1 kimi: {SAME}" in done
    assert sorted(told(foretold)) == sorted(told(done))
    assert recap(foretold)["h1"] == recap(done)["h1"]
    assert day.process() == before and day.show("DropInPaths") == ""
    assert day.show("Restart") == "on-failure"
    again = day.play("deploy.yml", "--diff")
    assert recap(again)["h1"]["changed"] == 0 and told(again) == []
    assert day.process() == before


def test_release_0_comes_back_as_it_was(day: Day, imported: dict[str, Any]) -> None:
    before = day.process()
    day.play("rollback.yml")
    day.served()
    assert day.process() != before
    day.stands()
    assert day.step()["reason"] == SAME


def test_a_gate_that_fails_gives_the_unit_back_and_touches_nothing(
    day: Day, imported: dict[str, Any]
) -> None:
    """More memory is demanded than this host has left: the plan knows. It does not know that an
    engine without a reasoning parser will answer without reasoning_content."""
    before = day.process()
    day.override(memory={"min_available": "440GiB"})
    done = day.opsctl("deploy", "--limit", "h1", "--yes", ends=1)
    assert "with the engine running: " in done.stderr
    assert "440.00 GiB demanded by memory.min_available" in done.stderr
    day.override(gates={**QUICK["gates"], "reasoning": True})
    done = day.opsctl("deploy", "--limit", "h1", "--yes", ends=5)
    assert "reasoning_content is empty" in done.stderr
    assert day.process() == before
    day.stands()
    day.override()


def test_a_power_cut_within_gives_the_unit_back(day: Day, imported: dict[str, Any]) -> None:
    """One point of tests/drills/test_takeover_cut.py: the new unit stands there, unconfirmed."""
    host = day.hosts["h1"]
    known = host.sh("ls /var/lib/opsctl/kimi/runs").stdout.split()
    deploy = subprocess.Popen(
        [_tool("opsctl"), "deploy", "--limit", "h1", "--yes", "-i", str(day.inventory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    runs = shell.folder() / "hosts/h1/disk/var/lib/opsctl/kimi/runs"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        new = [p for p in runs.glob("*/events.jsonl") if p.parent.name not in known]
        if new and '"gates"' in new[0].read_text():
            break
        time.sleep(0.01)
    host.lab("kill")
    os.killpg(deploy.pid, signal.SIGKILL)
    deploy.wait()
    host.lab("start")
    assert new and not (new[0].parent / "result.json").exists()
    host.sh(SETTLED)
    day.served()
    result = json.loads(
        host.sh(f"cat /var/lib/opsctl/kimi/runs/{new[0].parent.name}/result.json").stdout
    )
    assert (result["outcome"], result["release"]) == ("rolled_back", "0")
    day.stands()
    assert "0 (not by opsctl)" in day.opsctl("status", "--limit", "h1").stdout
    assert day.step()["reason"] == SAME
    host.sh("rm -f /var/lib/opsctl/kimi/lock.json")  # nobody was left to give it back


def test_an_edited_unit_is_told_and_what_runs_is_imported(day: Day) -> None:
    host = day.hosts["h1"]
    host.sh(f"sed -i 's/--watchdog-timeout 300 /--watchdog-timeout 400 /' {UNIT_PATH}")
    done = day.opsctl("import", "--host", "h1", "--unit", "sglang-kimi")
    host.sh("systemctl daemon-reload")
    planned = day.step()
    host.put(UNIT_PATH, UNIT.encode())
    host.sh("systemctl daemon-reload")
    assert "edited since release 0 was kept of it" in planned["reason"], planned
    assert "the old unit was edited after this start" in " ".join(planned["from_next_start"])
    again = day.step()
    assert "edited" not in again["reason"] + " ".join(again["from_next_start"])
    assert "flags.watchdog-timeout: 300.0 runs, 400.0 stands in the unit" in done.stderr
    assert "its files were changed after this start" in done.stderr
    assert "watchdog-timeout: 300.0" in done.stdout


def test_opsctl_takes_it_over_and_a_restart_then_uses_the_new_unit(
    day: Day, imported: dict[str, Any]
) -> None:
    before = day.process()
    day.opsctl("deploy", "--limit", "h1", "--yes")
    assert day.process() == before
    text = day.opsctl("status", "--limit", "h1").stdout
    assert "from the next start on" in text and "user root → sglang" in text
    day.opsctl("restart", "kimi", "--limit", "h1", "--yes")
    assert day.process() != before
    assert day.hosts["h1"].sh(f"ps -o user= -p {day.process()[0]}").stdout.strip() == "sglang"
    assert "from the next start on" not in day.opsctl("status", "--limit", "h1").stdout


def test_a_bare_process_is_found_and_needs_a_restart(day: Day) -> None:
    """On h2, from a login, with a port of its own, beside a unit: which of them is asked."""
    host, hand = day.hosts["h2"], "/etc/systemd/system/hand.service"
    assert "no SGLang server runs on h2" in day.opsctl("import", "--host", "h2", ends=2).stderr
    host.put("/etc/kimi.env", f"KEY={KEY}\n".encode(), "600")
    host.put(hand, UNIT.encode())
    host.put(f"{hand}.d/10-limits.conf", DROPIN.encode())
    said = f"{COMMAND} --port 30100 --api-key {KEY}"
    host.sh(
        "systemctl daemon-reload && systemctl enable --now hand.service; "
        f"nohup {said} > /root/engine.log 2>&1 < /dev/null & echo $! > /root/pid; "
        f"({SERVED}) && ({SERVED.replace('30000', '30100')})"
    )
    pid = host.sh("cat /root/pid").stdout.strip()
    several = day.opsctl("import", "--host", "h2", ends=2).stderr
    assert "2 SGLang servers run on h2; say which" in several
    assert "--unit hand.service: SGLang 0.5.9" in several and f"--pid {pid}: " in several
    done = day.opsctl("import", "--host", "h2", "--name", "bare", "--pid", pid)
    assert "no unit of its own looks after it" in done.stderr and f"kill {pid}" in done.stderr
    bare = yaml.safe_load(done.stdout)["sglang_services"]["bare"]
    assert bare["port"] == 30100 and bare["engine"] == {"version": "0.5.9"}
    describe(day, "bare", {**bare, "secrets": {"api-key": KEY}})
    plan = day.opsctl("plan", "--limit", "h2", ends=1)
    assert f"PID {pid} (python), in no unit (nohup or the like), an SGLang server" in plan.stderr
    assert f"which a takeover has to start anew; stop it first: kill {pid}" in plan.stderr
    host.sh(f"kill -9 {pid}")


def describe(day: Day, name: str, service: dict[str, Any]) -> None:
    path = day.inventory / "host_vars" / "h2" / "services.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"sglang_services": {name: {**service, **QUICK}}}))


def test_a_unit_of_another_name_is_replaced_and_comes_back(day: Day) -> None:
    host, hand = day.hosts["h2"], "/etc/systemd/system/hand.service"
    place = day.inventory / "host_vars" / "h2"
    vault = ("--secrets-out", str(place / "vault.yml"))
    said = day.opsctl("import", "--host", "h2", "--name", "kimi", *vault)
    assert "hand.service → sglang-kimi.service" in said.stderr
    described = yaml.safe_load(said.stdout)["sglang_services"]["kimi"]
    assert described["takes_over"] == "hand.service"
    for wrong, words in (
        ("systemd-journald.service", "its main process is systemd-journald, and not the engine"),
        ("nosuch.service", "there is no unit nosuch.service on this host"),
    ):
        describe(day, "kimi", {**described, "takes_over": wrong})
        assert words in day.opsctl("plan", "--limit", "h2", ends=1).stderr
        assert words in day.opsctl("deploy", "--limit", "h2", "--yes", ends=1).stderr
    describe(day, "kimi", described)
    host.sh(f"ln -s hand.service {UNIT_PATH}; systemctl daemon-reload")
    plan = day.opsctl("plan", "--limit", "h2", ends=1)
    assert "sglang-kimi.service is only another name of hand.service" in plan.stderr
    host.sh(f"rm {UNIT_PATH}; systemctl daemon-reload")
    assert day.step("h2")["reason"].startswith("restart: takes over hand.service")
    day.opsctl("deploy", "--limit", "h2", "--yes")
    state = "systemctl is-active hand sglang-kimi; systemctl is-enabled hand"
    assert host.sh(state, check=False).stdout.split() == ["inactive", "active", "disabled"]
    day.opsctl("rollback", "kimi", "--limit", "h2", "--yes")
    assert host.sh(f"cat {UNIT_PATH} {hand}").stdout == UNIT * 2
    assert host.sh(state, check=False).stdout.split() == ["inactive", "active", "disabled"]
    host.sh(SERVED)
