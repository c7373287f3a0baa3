"""The host's power is cut, or the controller is killed, at 20 points of a swap each. Whatever is
left, a confirmed release serves in the end. The tables in docs/drills.md are written from here.

A point is a number of events that the guard has told. They are read in the host's disk from this
side, so that watching costs the host nothing and the cut comes some milliseconds later.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opsctl.lab import shell

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("guarding", ROOT / "tests/lab/guarding.py")
assert _spec is not None and _spec.loader is not None
guarding = importlib.util.module_from_spec(_spec)
sys.modules["guarding"] = guarding
_spec.loader.exec_module(guarding)

pytestmark = pytest.mark.drill

ONE, TWO = guarding.release(word="one"), guarding.release(word="two")
BAD = guarding.release("tools-unparsed", word="bad")
RUNS = "var/lib/opsctl/kimi/runs"
POWER = [("good", n) for n in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16)] + [
    ("bad", n) for n in (12, 14, 16, 18, 20, 22)
]
# Before the guard is launched only time can be counted; after that, events.
CONTROLLER = [("seconds", n / 2) for n in range(1, 7)] + [("events", n) for n in range(1, 15)]


def disk() -> Path:
    return shell.folder() / "hosts/h1/disk"


def events(run: str) -> list[dict[str, Any]]:
    try:
        lines = (disk() / RUNS / run / "events.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("}")]


def told(event: dict[str, Any] | None) -> str:
    if event is None:
        return "launched, nothing begun"
    name = event["event"]
    detail = {"phase": event.get("phase"), "gate": (event.get("check") or {}).get("id")}
    return f"{name} {detail[name]}" if name in detail else str(name)


def until(what: Callable[[], bool], patience: float) -> bool:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.004)
    return False


@pytest.fixture(scope="module")
def host(lab_host: Any) -> Any:
    guarding.prepare(lab_host)
    for number, release in enumerate((ONE, TWO, BAD)):
        guarding.call(lab_host, "stage", stdin=release)
        if release is not BAD:
            guarding.begin(lab_host, f"first{number}", "swap", release["digest"])
            assert guarding.result(lab_host, f"first{number}")["outcome"] == "confirmed"
    return lab_host


def whole(host: Any) -> str:
    """The promise; answers the digest that serves."""
    confirmed = str(guarding.state(host)["release"]["confirmed"])
    assert confirmed in (ONE["digest"], TWO["digest"])
    guarding.serving(host, confirmed)
    left = host.sh("systemctl list-units --all --no-legend 'opsctl-guard*' 'opsctl-deadman*'")
    assert until_gone(host) or not left.stdout.strip()
    return confirmed


def until_gone(host: Any) -> bool:
    done = host.sh(
        "for i in $(seq 50); do "
        "[ -z \"$(systemctl list-units --all --no-legend 'opsctl-guard*' 'opsctl-deadman*')\" ] "
        "&& exit 0; sleep 0.2; done; exit 1",
        check=False,
    )
    return bool(done.returncode == 0)


def name_of(digest: str) -> str:
    names = {ONE["digest"]: "one", TWO["digest"]: "two", BAD["digest"]: "bad"}
    return names.get(digest, digest)


# -- the tables


class Table:
    def __init__(self, mark: str, title: str, head: str) -> None:
        self.title = title
        self.mark, self.rows = mark, [head, "|" + "---|" * head.count(" | ") + "---|"]

    def add(self, *cells: object) -> None:
        self.rows.append("| " + " | ".join(str(cell) for cell in cells) + " |")

    def write(self) -> None:
        path = ROOT / "docs/drills.md"
        text = path.read_text() if path.exists() else "# Drills\n"
        begin, end = f"<!-- {self.mark}: generated -->", f"<!-- /{self.mark} -->"
        body = "\n".join([begin, self.title, "", *self.rows, end])
        before, found, rest = text.partition(begin)
        after = rest.partition(end)[2] if found else ""
        path.write_text(
            f"{before.rstrip()}\n\n{body}\n{after.lstrip()}" if found else text + f"\n{body}\n"
        )


@pytest.fixture(scope="module")
def power_table() -> Iterator[Table]:
    table = Table(
        "power-cut",
        "## The host's power is cut during a swap\n\nWritten by `make drills`. A lab host's power "
        "cut is SIGKILL of everything in it: nothing says goodbye, transient units are gone, and "
        "the disk is as it was. What was written but not yet synced survives it, other than on "
        "real hardware.",
        "| # | new release | power cut after | told result | serves in the end "
        "| power-on to result |",
    )
    yield table
    if len(table.rows) == 2 + len(POWER):
        table.write()


@pytest.fixture(scope="module")
def kill_table() -> Iterator[Table]:
    table = Table(
        "controller-kill",
        "## The controller is killed during a swap\n\nWritten by `make drills`: `opsctl rollback` "
        "gets SIGKILL, and nobody comes back.",
        "| # | controller killed after | told result | serves in the end |",
    )
    yield table
    if len(table.rows) == 2 + len(CONTROLLER):
        table.write()


# -- the drills


@pytest.mark.parametrize(("story", "point"), POWER)
def test_power_cut(host: Any, power_table: Table, story: str, point: int) -> None:
    before = whole(host)
    other = TWO if before == ONE["digest"] else ONE
    target = BAD if story == "bad" else other
    run = f"{story}-{point}"
    guarding.begin(host, run, "swap", target["digest"])
    until(lambda: len(events(run)) >= point or has_result(run), 60)
    time.sleep(0.04 * (point % 4))  # between two events, not always right after one
    seen = events(run)
    host.lab("kill")
    host.lab("start")
    began = time.monotonic()
    result = guarding.result(host, run, patience=90)
    seconds = time.monotonic() - began
    confirmed = whole(host)
    assert result["release"] == confirmed
    if story == "bad":
        assert confirmed == before
    assert result["outcome"] == ("confirmed" if confirmed != before else result["outcome"])
    where = told(seen[-1] if seen else None)
    power_table.add(
        len(power_table.rows) - 1,
        "fails a gate" if story == "bad" else "good",
        f"{where} ({len(seen)} events)",
        result["outcome"],
        f"{name_of(confirmed)}, confirmed ({'new' if confirmed != before else 'old'})",
        f"{seconds:.1f} s",
    )


def has_result(run: str) -> bool:
    return any(event["event"] == "result" for event in events(run))


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory, host: Any) -> Path:
    """The lab's own inventory, with the description that the command demands."""
    lab = subprocess.run(
        ["bash", str(ROOT / "opsctl/lab/lab.sh"), "inventory"],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "hosts").write_text(lab.stdout)
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text(
        "sglang_services:\n  kimi:\n    model: {path: /opt/fake, served_name: stand-in}\n"
        f'    engine: {{version: "0.5.9"}}\n    port: {guarding.PORT}\n'
    )
    return folder


@pytest.mark.parametrize(("kind", "point"), CONTROLLER)
def test_controller_killed(
    host: Any, inventory: Path, kill_table: Table, kind: str, point: float
) -> None:
    before = whole(host)
    known = {p.name for p in (disk() / RUNS).iterdir()}
    controller = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "opsctl"), "rollback", "kimi", "-i", str(inventory),
            "--limit", "h1", "--yes", "--reason", "drill",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    if kind == "seconds":
        time.sleep(point)
    else:
        until(lambda: bool(fresh(known)) and len(events(fresh(known))) >= point, 60)
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    run = fresh(known)
    seen = events(run) if run else []
    outcome = "not launched"
    if run:
        result = guarding.result(host, run)
        outcome = result["outcome"]
        assert outcome == "confirmed" and result["release"] != before, result
    confirmed = whole(host)
    assert (confirmed == before) == (run == "")
    lock = guarding.state(host)["lock"]  # nobody was left to give it back
    if lock:
        guarding.call(host, "unlock", "kimi", "--run", lock["run"])
    where = told(seen[-1] if seen else None) if run else f"{point:g} s, before the launch"
    kill_table.add(
        len(kill_table.rows) - 1,
        f"{where} ({len(seen)} events)",
        outcome,
        f"{name_of(confirmed)}, confirmed ({'new' if confirmed != before else 'old'})",
    )


def fresh(known: set[str]) -> str:
    """The run that the controller has launched; "" if none is yet."""
    new = {p.name for p in (disk() / RUNS).iterdir() if (p / "run.json").exists()} - known
    return sorted(new)[0] if new else ""
