"""Rolling driver upgrades that go wrong at each step, on two hosts that serve. The table in
docs/drills.md is written from here. What a story breaks is mended as its message says, and the next
roll goes on. Each begins on hosts that serve and carry no fault: fresh ones, if those of the story
before are not so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from opsctl.lab import shell
from tests.conftest import boot, slay
from tests.lab.driver_fleet import FIRST, SECOND, SERVICE, THIRD, Fleet, apart, said, streams

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


VAR = "/var/lib/opsctl/kimi"
FAULTS = "/run/lab-dkms-fails /var/lib/lab-kernel/refuses"
DOWN = {"nvidia_driver_allow_downgrade": True}  # each story takes the next of three, in a ring


@pytest.fixture(scope="module")
def fleets() -> Iterator[list[Fleet]]:
    """None, or the one whose hosts are up."""
    found: list[Fleet] = []
    yield found
    for one in found:
        one.repository.stop()


@pytest.fixture
def fleet(fleets: list[Fleet], tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    if fleets and not clean(fleets[0]):
        fleets.pop().repository.stop()
    if not fleets:
        found = Fleet(boot(2), tmp_path_factory.mktemp("drivers"))
        fleets.append(found)
        done = found.play("deploy.yml", nvidia_driver_version=FIRST)
        assert done.returncode == 0, done.stdout + done.stderr
    return fleets[0]


def clean(fleet: Fleet) -> bool:
    """Both serve, on one driver, and nothing is left of the story before."""
    marks = " ".join(f"{VAR}/{name}.json" for name in ("parked", "pending", "lock"))
    left = f"ls {marks} {FAULTS} 2>/dev/null"
    told = fleet.ask(f"systemctl is-active {SERVICE}; cat /sys/module/nvidia/version; {left}")
    return set(told.values()) in [{f"active\n{version}"} for version in (FIRST, SECOND, THIRD)]


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
    left = f"ls {VAR}/parked.json {VAR}/pending.json 2>/dev/null"
    end = time.monotonic() + patience
    while time.monotonic() < end:
        ask = f"systemctl is-active {SERVICE}; {left}"
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


def ends_well(done: subprocess.CompletedProcess[str], fleet: Fleet, version: str) -> None:
    assert done.returncode == 0, said(done)
    assert set(fleet.drivers().values()) == {version}
    assert set(fleet.states().values()) == {"active"}


def opsctl(fleet: Fleet, *words: str) -> str:
    """What the command says, whatever it ends with."""
    tool = str(Path(sys.executable).with_name("opsctl"))
    command = [tool, *words, "-i", str(fleet.folder / "inventory")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return " ".join((done.stdout + done.stderr).split())


def test_all_goes_well(fleet: Fleet, table: list[str]) -> None:
    wanted = following(fleet)
    with streams(fleet) as asked:
        done = fleet.roll(wanted, **DOWN)
    ends_well(done, fleet, wanted)
    assert apart(asked["h1"], asked["h2"])
    table.append(row("nothing", "upgraded, upgraded", "one of the two always served", asked))


def test_packages_fail_half_way(fleet: Fleet, table: list[str]) -> None:
    """The new library is unpacked, the module is not built: no engine could start on that."""
    wanted = following(fleet)
    fleet.hosts["h1"].sh("touch /run/lab-dkms-fails")
    boots = fleet.boots()
    done = fleet.roll(wanted, **DOWN)
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
    assert "half installed" in said(fleet.roll(wanted, **DOWN))
    mended = fleet.roll(wanted, nvidia_driver_allow_repair=True, **DOWN)
    ends_well(mended, fleet, wanted)
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
    done = fleet.roll(wanted, **DOWN)
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
    again = fleet.roll(wanted, **DOWN)
    ends_well(again, fleet, wanted)
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
    halt = shell.folder() / "hosts/h1/halt"
    halt.touch()  # its reboot is a power-off
    done = fleet.roll(wanted, **DOWN)
    tells(
        done,
        "not back 60 s after its reboot",
        "at its next boot it starts if doctor finds the host well",
        "not touched: h2",
    )
    assert fleet.states()["h2"] == "active"
    fleet.hosts["h1"].lab("start")
    served(fleet, "h1")
    watched = opsctl(fleet, "watch", "kimi", "--limit", "h1")
    assert "confirmed" in watched, watched
    again = fleet.roll(wanted, **DOWN)
    ends_well(again, fleet, wanted)
    table.append(
        row(
            "the host does not come back",
            "h1: not back 60 s after its reboot; h2 not touched",
            "powered on: kimi starts by itself, gated, which `opsctl watch kimi` shows; rolled "
            "again: unchanged, upgraded",
        )
    )


def killed(fleet: Fleet, word: str, version: str, ripe: Callable[[], bool]) -> None:
    """A roll whose controller, with all that it runs here, gets SIGKILL once it has said `word`
    and the host is `ripe`."""
    wish = {"nvidia_driver_version": version, "nvidia_driver_branch": version[:3]}
    roll = subprocess.Popen(
        fleet.command("upgrade_driver.yml", **wish, **DOWN, nvidia_driver_allow_reboot=True),
        cwd=ROOT / "playbooks",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    assert roll.stdout is not None
    for line in roll.stdout:
        if word in line:
            break
    else:
        raise AssertionError(f"the roll never said {word}")
    end = time.monotonic() + 60
    while not ripe() and time.monotonic() < end:
        time.sleep(0.05)
    late = time.monotonic() >= end
    slay(roll)
    assert not late, "what the kill was to meet never came"


def test_the_controller_dies_during_the_reboot(fleet: Fleet, table: list[str]) -> None:
    had, wanted = fleet.drivers()["h1"], following(fleet)
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = fleet.hosts["h1"].sh(boot_id).stdout

    def down() -> bool:
        return bool(fleet.hosts["h1"].sh(boot_id, check=False).stdout != before)

    with streams(fleet) as asked:
        killed(fleet, "h1 kimi: boot", wanted, down)
        time.sleep(5)
        served(fleet, "h1")
        assert fleet.drivers() == {"h1": wanted, "h2": had}
        again = fleet.roll(wanted, **DOWN)
    ends_well(again, fleet, wanted)
    assert apart(asked["h1"], asked["h2"])
    fleet.hosts["h1"].sh(f"test -e {VAR}/lock.json")  # nothing was to be done there
    watched = opsctl(fleet, "watch", "kimi", "--limit", "h1")
    assert "confirmed" in watched, watched
    fleet.hosts["h1"].sh(f"test ! -e {VAR}/lock.json")
    table.append(
        row(
            "the controller is killed during the reboot",
            "nothing",
            "kimi starts by itself on h1, gated; rolled again: unchanged, upgraded; `opsctl watch "
            "kimi` shows how that start ended, and gives its lock back",
            asked,
        )
    )


def test_the_controller_dies_while_packages_move(fleet: Fleet, table: list[str]) -> None:
    had, wanted, boots = fleet.drivers()["h1"], following(fleet), fleet.boots()

    def moving() -> bool:
        return bool(fleet.hosts["h1"].sh("pgrep -x dpkg", check=False).returncode == 0)

    killed(fleet, "h1 kimi: drain", wanted, moving)
    time.sleep(20)
    assert fleet.boots() == boots and fleet.states() == {"h1": "inactive", "h2": "active"}
    status = opsctl(fleet, "status", "kimi")
    assert "stopped for:" in status, status
    installed = "dpkg-query -W -f '${Version}' nvidia-open"  # the host's program does not die
    assert fleet.hosts["h1"].sh(installed).stdout == f"{wanted}-1"
    assert fleet.drivers() == {"h1": had, "h2": had}
    assert "opsctl unlock kimi" in said(fleet.roll(wanted, **DOWN))
    opsctl(fleet, "unlock", "kimi", "--limit", "h1", "--yes", "--reason", "it died")
    again = fleet.roll(wanted, **DOWN)
    ends_well(again, fleet, wanted)
    table.append(
        row(
            "the controller is killed while packages move",
            "nothing",
            "the packages are brought to their end; kimi stays stopped on h1, as `opsctl status` "
            "says, and locked; `opsctl unlock kimi`, rolled again: upgraded, upgraded",
        )
    )
