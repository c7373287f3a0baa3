"""Rolling driver upgrades that go wrong at each step, on two hosts that serve. The table in
docs/drills.md is written from here. The stories build on each other: what one leaves behind is
mended as its message says, and the next roll goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.driver_fleet import FIRST, SECOND, THIRD, Fleet, apart, said, streams

pytestmark = pytest.mark.drill

ROOT = Path(__file__).resolve().parents[2]
STORIES = 6
HEAD = """## Drivers are upgraded host by host

Written by `make drills`: `upgrade_driver.yml` on two lab hosts that serve the reference
deployment (stand-in engine, whose start takes 5 s; a lab host boots in 2 s), with real packages.
Black-out: the longest time in which `/health` of a host did not answer a client that asks it twenty
times a second, on two cores shared with whatever else ran: the order of magnitude is all it says.

| # | what happens | the roll says | then | black-out h1, h2 |
|---|---|---|---|---|"""


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    found = Fleet(lab_hosts, tmp_path_factory.mktemp("drivers"))
    done = found.play("deploy.yml", nvidia_driver_version=FIRST)
    assert done.returncode == 0, done.stdout + done.stderr
    yield found
    found.repository.stop()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    if len(rows) < STORIES:
        return
    path = ROOT / "docs/drills.md"
    begin, end = "<!-- driver-upgrades: generated -->", "<!-- /driver-upgrades -->"
    text = path.read_text()
    before, found, rest = text.partition(begin)
    body = "\n".join([begin, HEAD, *(f"| {n} {row}" for n, row in enumerate(rows, 1)), end])
    after = rest.partition(end)[2] if found else ""
    path.write_text(f"{before.rstrip()}\n\n{body}\n{after.lstrip()}")


def row(what: str, says: str, then: str, gaps: Any = None) -> str:
    outs = ", ".join(f"{s.longest:.1f} s" for s in gaps.values()) if gaps else "not measured"
    return f"| {what} | {says} | {then} | {outs} |"


def served(fleet: Fleet, name: str, patience: float = 60) -> None:
    """By itself, gated and confirmed, with nothing left behind."""
    left = "ls /var/lib/opsctl/kimi/parked.json /var/lib/opsctl/kimi/pending.json 2>/dev/null"
    end = time.monotonic() + patience
    while time.monotonic() < end:
        ask = f"systemctl is-active sglang-kimi.service; {left}"
        if fleet.hosts[name].sh(ask, check=False).stdout.split() == ["active"]:
            return
        time.sleep(1)
    raise AssertionError(fleet.hosts[name].sh("journalctl -n 50 --no-pager").stdout)


def tells(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """The roll failed, and said all of this."""
    text = said(done)
    assert done.returncode == 2, text
    for one in words:
        assert one in text, f"{one!r} is not in: {text}"


def following(fleet: Fleet) -> str:
    """Another version than the hosts have, so that each story can be played alone."""
    turn = (FIRST, SECOND, THIRD)
    return turn[(turn.index(fleet.drivers()["h1"]) + 1) % len(turn)]


def test_all_goes_well(fleet: Fleet, table: list[str]) -> None:
    with streams(fleet) as asked:
        done = fleet.roll(SECOND)
    assert done.returncode == 0, said(done)
    assert set(fleet.drivers().values()) == {SECOND} and apart(asked["h1"], asked["h2"])
    table.append(row("nothing", "upgraded, upgraded", "one of the two always served", asked))


def test_packages_fail_half_way(fleet: Fleet, table: list[str]) -> None:
    """The new library is unpacked, the module is not built: no engine could start on that."""
    fleet.hosts["h1"].sh("touch /run/lab-dkms-fails")
    boots = fleet.boots()
    done = fleet.roll(THIRD)
    tells(
        done,
        "Bad return status for module build",
        "now: kimi could not be started again",
        "no GPU is here",  # nvidia-smi ends with: Driver/library version mismatch
        "not touched: h2",
        "opsctl start kimi --limit h1",
    )
    assert fleet.boots() == boots and fleet.states() == {"h1": "inactive", "h2": "active"}
    fleet.hosts["h1"].sh("rm /run/lab-dkms-fails")
    assert "half installed" in said(fleet.roll(THIRD))
    mended = fleet.roll(THIRD, nvidia_driver_allow_repair=True)
    assert mended.returncode == 0, said(mended)
    assert set(fleet.drivers().values()) == {THIRD}
    assert set(fleet.states().values()) == {"active"}
    table.append(
        row(
            "the module's build fails in apt-get, before the reboot",
            "h1: failed half way; kimi is not started (library and module differ); h2 not touched",
            "the cause mended, rolled again with allow_repair: upgraded, upgraded",
        )
    )


def test_the_module_does_not_load_after_the_reboot(fleet: Fleet, table: list[str]) -> None:
    wanted = following(fleet)
    fleet.hosts["h1"].sh("touch /var/lib/lab-kernel/refuses")
    done = fleet.roll(wanted, nvidia_driver_allow_downgrade=True)
    tells(
        done,
        "its module does not load",
        f"the kernel runs no driver, {wanted} is installed",
        "kimi is stopped: its guard found the host not well",
        "not touched: h2",
    )
    assert fleet.states() == {"h1": "inactive", "h2": "active"}
    fleet.hosts["h1"].sh("systemctl reboot", check=False)  # nothing starts on it at any later boot
    time.sleep(15)
    assert fleet.states() == {"h1": "inactive", "h2": "active"}
    fleet.hosts["h1"].sh("rm /var/lib/lab-kernel/refuses; systemctl reboot", check=False)
    time.sleep(5)
    served(fleet, "h1")
    again = fleet.roll(wanted, nvidia_driver_allow_downgrade=True)
    assert again.returncode == 0 and set(fleet.drivers().values()) == {wanted}, said(again)
    table.append(
        row(
            "the module does not load after the reboot",
            "h1: its module does not load; kimi is stopped, its guard found the host not well; h2 "
            "not touched",
            "a second boot starts nothing either; mended and booted: kimi starts by itself, gated; "
            "rolled again: unchanged, upgraded",
        )
    )


def test_a_host_does_not_come_back(fleet: Fleet, table: list[str]) -> None:
    wanted = following(fleet)
    halt = Path(os.environ.get("LAB_DIR", "/tmp/lab")) / "hosts/h1/halt"
    halt.touch()  # its reboot is a power-off
    done = fleet.roll(wanted, nvidia_driver_allow_downgrade=True)
    tells(
        done,
        "not back 60 s after its reboot",
        "at its next boot it starts if doctor finds the host well",
        "not touched: h2",
    )
    assert fleet.states()["h2"] == "active"
    fleet.hosts["h1"].lab("start")
    served(fleet, "h1")
    again = fleet.roll(wanted, nvidia_driver_allow_downgrade=True)
    assert again.returncode == 0 and set(fleet.drivers().values()) == {wanted}, said(again)
    table.append(
        row(
            "the host does not come back",
            "h1: not back 60 s after its reboot; h2 not touched",
            "powered on: kimi starts by itself, gated; rolled again: unchanged, upgraded",
        )
    )


def killed(fleet: Fleet, word: str, version: str) -> None:
    """A roll whose controller gets SIGKILL when it has said `word`."""
    wish = {"nvidia_driver_version": version, "nvidia_driver_branch": version[:3]}
    roll = subprocess.Popen(
        fleet.command("upgrade_driver.yml", **wish, nvidia_driver_allow_reboot=True),
        cwd=ROOT / "playbooks",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    assert roll.stdout is not None
    for line in roll.stdout:
        if word in line:
            break
    else:
        raise AssertionError(f"the roll never said {word}")
    time.sleep(1.5)
    os.killpg(roll.pid, signal.SIGKILL)
    roll.wait()


def test_the_controller_dies_during_the_reboot(fleet: Fleet, table: list[str]) -> None:
    with streams(fleet) as asked:
        killed(fleet, "h1 kimi: boot", THIRD)
        time.sleep(5)
        served(fleet, "h1")
        assert fleet.drivers() == {"h1": THIRD, "h2": SECOND}
        again = fleet.roll(THIRD)
    assert again.returncode == 0 and set(fleet.drivers().values()) == {THIRD}, said(again)
    table.append(
        row(
            "the controller is killed during the reboot",
            "nothing",
            "kimi starts by itself on h1, gated; rolled again: unchanged, upgraded",
            asked,
        )
    )


def test_the_controller_dies_while_packages_move(fleet: Fleet, table: list[str]) -> None:
    wish = {"nvidia_driver_allow_downgrade": True}
    (fleet.folder / "inventory/host_vars").mkdir(exist_ok=True)
    (fleet.folder / "inventory/host_vars/h1.yml").write_text("nvidia_driver_allow_downgrade: true")
    killed(fleet, "h1 kimi: drain", FIRST)
    time.sleep(20)
    assert fleet.states() == {"h1": "inactive", "h2": "active"}
    assert "opsctl unlock kimi" in said(fleet.roll(FIRST, **wish))
    run = 'sed \'s/.*"run": "//; s/".*//\' /var/lib/opsctl/kimi/lock.json'
    fleet.hosts["h1"].sh(f"python3 /var/lib/opsctl/onhost.pyz unlock kimi --run $({run})")
    again = fleet.roll(FIRST, **wish, nvidia_driver_allow_repair=True)
    assert again.returncode == 0 and set(fleet.drivers().values()) == {FIRST}, said(again)
    assert set(fleet.states().values()) == {"active"}
    table.append(
        row(
            "the controller is killed while kimi drains or packages move",
            "nothing",
            "kimi stays stopped on h1, parked and locked; `opsctl unlock kimi`, rolled again: "
            "upgraded, upgraded",
        )
    )
