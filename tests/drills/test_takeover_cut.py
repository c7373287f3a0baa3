"""A unit made by hand is taken over as it runs, and the host's power is cut, or the controller is
killed, at every step of it. In the end the host serves either that unit or the first release,
confirmed, and `opsctl status` and `opsctl plan` say which. Written to docs/drills.md.

A point is a number of events that the guard has told, read in the host's disk from this side.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import rehearse, shell
from opsctl.rehearsal import wheel
from tests.drills.test_power_cut import Table, told, until
from tests.lab.test_takeover_by_hand import reached

pytestmark = pytest.mark.drill

ROOT = "/opt/sglang/0.5.23"
NAME = "sglang-tiny.service"
UNIT_PATH = f"/etc/systemd/system/{NAME}"
UNIT = f"""\
# by hand
[Service]
ExecStart={ROOT}/bin/python -m sglang.launch_server --model-path /srv/models/tiny-llama \
--mem-fraction-static 0.3 --max-total-tokens=4096
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""
DROPIN = "[Service]\nLimitNOFILE=4096\n"
RUNS = "var/lib/opsctl/tiny/runs"
QUICK = {
    "gates": {"soak": "1s", "poll": "0.2s", "request_timeout": "10s"},
    "timing": {"drain": "5s", "stall": "8s", "cap": "60s"},
}
# Of a good takeover of this engine twelve events are told (the result is the last); the gate
# `memory` is the eighth, and after it has failed the restore's follow.
POWER = [("good", n) for n in (0, 1, 3, 7, 9, 11, 12)] + [("bad", n) for n in (10, 12)]
CONTROLLER = [("seconds", 1), ("events", 1), ("events", 7)]
CLEAN = (
    "systemctl stop 'opsctl-deadman*' 'opsctl-guard*' sglang-tiny.service; "
    "systemctl disable -q sglang-tiny opsctl-recover; systemctl reset-failed; "
    "rm -rf /etc/opsctl /var/lib/opsctl /etc/systemd/system/{sglang-tiny,opsctl-recover}.service*; "
    "systemctl daemon-reload"
)
HEALTHY = (
    "for i in $(seq 300); do curl -fsS -o /dev/null http://127.0.0.1:30000/health 2>/dev/null && "
    "exit 0; sleep 0.1; done; exit 1"
)


@dataclass
class Place:
    """The host and its inventory, which was written by an import of what runs there."""

    host: Any
    inventory: Path

    @property
    def runs(self) -> Path:
        return shell.folder() / "hosts/h1/disk" / RUNS

    def run(self) -> str:
        """The deployment's run, "" before it is launched; a boot's own run is another."""
        found = [p.parent.name for p in self.runs.glob("*/run.json")]
        return next((name for name in found if not name.startswith("boot-")), "")

    def events(self) -> list[dict[str, Any]]:
        path = self.runs / self.run() / "events.jsonl"
        lines = path.read_text().splitlines() if self.run() and path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @property
    def said(self) -> Path:
        """What the deployment told."""
        return self.inventory.parent / "deploy.log"

    def at(self, point: int) -> bool:
        """Whether the guard has told so many events, or its last one."""
        seen = self.events()
        over = bool(seen) and seen[-1]["event"] == "result"
        return bool(self.run()) and (len(seen) >= point or over)

    def deploy(self) -> subprocess.Popen[bytes]:
        with self.said.open("wb") as file:
            return subprocess.Popen(
                self._argv("deploy", "--limit", "h1", "--yes", "--reason", "drill"),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def told(self, *words: str) -> Any:
        done = subprocess.run(
            self._argv(*words, "-o", "json"), capture_output=True, text=True, timeout=120
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def _argv(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).parent / "opsctl"), *words, "-i", str(self.inventory)]

    def again(self) -> str:
        """The hand-made unit runs, and nothing of opsctl is on the host. Answers its process."""
        self.host.sh(
            f"{CLEAN}; mkdir {UNIT_PATH}.d; cat > {UNIT_PATH}; "
            f"printf %s {shlex.quote(DROPIN)} > {UNIT_PATH}.d/10-limits.conf; "
            f"systemctl daemon-reload; systemctl enable -q --now {NAME}; {HEALTHY}",
            input=UNIT,
        )
        return self.process()

    def process(self) -> str:
        return str(self.host.sh(f"systemctl show -P InvocationID {NAME}").stdout.strip())

    def demand(self, *, reasoning: bool) -> None:
        """`reasoning`: demanded of an engine without a parser for it, a gate fails that no plan
        foresees."""
        path = self.inventory / "host_vars/h1.yml"
        gates = {**QUICK["gates"], "reasoning": reasoning}
        said = {**QUICK, "gates": gates, "memory": {"min_available": "16GiB"}}
        path.write_text(yaml.safe_dump({"sglang_overrides": {"tiny": said}}))

    def settled(self, run: str) -> tuple[str, str, str]:
        """Waits until the run has its result, nothing is pending, no guard and no dead-man is
        there, and the engine answers. Answers how the run ended, what is confirmed and what
        stands in systemd's folder."""
        done = self.host.sh(
            "for i in $(seq 450); do [ ! -e /var/lib/opsctl/tiny/pending.json ] && "
            f"[ -z '{run}' -o -s /{RUNS}/{run}/result.json ] && "
            "[ -z \"$(systemctl list-units --all --no-legend 'opsctl-guard*' 'opsctl-deadman*')\" ]"
            f" && break; sleep 0.2; done; ({HEALTHY}) || exit 1; cd /var/lib/opsctl/tiny; "
            f"cat runs/{run or 'none'}/result.json; echo ---; cat confirmed; echo ---; "
            f"cat {UNIT_PATH} {UNIT_PATH}.d/*; true"
        ).stdout
        result, confirmed, standing = done.split("---\n", 2)
        outcome = json.loads(result)["outcome"] if result else "not launched"
        return outcome, confirmed.strip(), standing


@pytest.fixture(scope="module")
def place(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Place:
    host, folder = lab_hosts[0], tmp_path_factory.mktemp("inventory")
    built = wheel.build("0.5.23", folder.parent / "wheels")
    rehearse.prepare(host.name, rehearse.PACKAGE / "rehearsal/scenarios/small-0.5.23.toml")
    host.put("/root/sglang.whl", built.path.read_bytes())
    host.sh(
        f"useradd --system --no-create-home sglang; python3 -m venv --without-pip {ROOT} && "
        f"python3 -m zipfile -e /root/sglang.whl {ROOT}/lib/python3*/site-packages"
    )
    (folder / "hosts.yml").write_text(yaml.safe_dump(reached(lab_hosts[:1])))
    for name in ("host_vars", "group_vars/all"):
        (folder / name).mkdir(parents=True)
    found = Place(host, folder)
    found.again()
    imported = found.told("import", "--host", "h1", "--out", str(folder / "group_vars/all/s.yml"))
    assert (
        "tiny" in yaml.safe_load((folder / "group_vars/all/s.yml").read_text())["sglang_services"]
    ), imported
    return found


def served(place: Place, run: str) -> tuple[str, str]:
    """The promise. Answers how the run ended, and who serves: "by hand" or "release 1,
    confirmed"."""
    outcome, confirmed, standing = place.settled(run)
    (status,) = place.told("status", "tiny", "--limit", "h1")["hosts"][0]["services"]
    (step,) = place.told("plan", "tiny", "--limit", "h1")["steps"]
    assert status["state"] == "active"
    if status["release"] == "0":
        assert confirmed in ("", "0") and standing == UNIT + DROPIN
        assert step["action"] == "takeover" and step["reason"].startswith("no restart: ")
        return outcome, "by hand"
    assert status["release"] == confirmed and f"X-OpsctlRelease={confirmed}\n" in standing
    assert step["action"] is None and step["reason"] == "no restart: nothing changed"
    return outcome, "release 1, confirmed"


@pytest.fixture(scope="module")
def power_table() -> Iterator[Table]:
    table = Table(
        "takeover-power-cut",
        "## The host's power is cut during a takeover\n\nWritten by `make drills`. A unit made by "
        "hand is taken over as it runs; what serves after the boot is either that unit, file and "
        "drop-in byte for byte, or the first release, confirmed. `opsctl status` and `opsctl plan` "
        "were asked each time and said the same.",
        "| # | takeover | power cut after | told result | serves in the end |",
    )
    yield table
    if len(table.rows) == 2 + len(POWER):
        table.write()


@pytest.fixture(scope="module")
def kill_table() -> Iterator[Table]:
    table = Table(
        "takeover-controller-kill",
        "## The controller is killed during a takeover\n\nWritten by `make drills`: `opsctl deploy`"
        " gets SIGKILL, and nobody comes back. The engine's process was the same at the end, every "
        "time.",
        "| # | controller killed after | told result | serves in the end |",
    )
    yield table
    if len(table.rows) == 2 + len(CONTROLLER):
        table.write()


@pytest.mark.parametrize(("story", "point"), POWER)
def test_power_cut(place: Place, power_table: Table, story: str, point: int) -> None:
    place.demand(reasoning=story == "bad")
    place.again()
    controller = place.deploy()
    reachable = until(lambda: place.at(point), 120)
    time.sleep(0.03 * (point % 4))  # between two events, not always right after one
    run, seen = place.run(), place.events()
    place.host.lab("kill")
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    place.host.lab("start")
    assert reachable and run, place.said.read_text()
    outcome, who = served(place, run)
    if story == "bad" or outcome != "confirmed":
        assert who == "by hand"
    where = told(seen[-1] if seen else None)
    power_table.add(
        len(power_table.rows) - 1,
        "fails a gate" if story == "bad" else "good",
        f"{where} ({len(seen)} events)",
        outcome,
        who,
    )


@pytest.mark.parametrize(("kind", "point"), CONTROLLER)
def test_controller_killed(place: Place, kill_table: Table, kind: str, point: int) -> None:
    place.demand(reasoning=False)
    process = place.again()
    controller = place.deploy()
    if kind == "seconds":
        time.sleep(point)
    else:
        assert until(lambda: place.at(point), 120), place.said.read_text()
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    run, seen = place.run(), place.events()
    outcome, who = served(place, run)
    assert (outcome, who) == (
        ("confirmed", "release 1, confirmed") if run else ("not launched", "by hand")
    )
    assert place.process() == process
    where = told(seen[-1] if seen else None) if run else f"{point} s, before the launch"
    kill_table.add(len(kill_table.rows) - 1, f"{where} ({len(seen)} events)", outcome, who)
