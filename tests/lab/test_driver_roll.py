"""upgrade_driver.yml on two real hosts that serve: real packages and reboots, stand-in engines.

The kernel's module is stood in (apt_repository.KERNEL). The tests build on each other.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opsctl.paths import share
from tests.lab.driver_fleet import (
    FIRST,
    REBOOT,
    SECOND,
    SERVICE,
    THIRD,
    Fleet,
    apart,
    said,
    streams,
)

pytestmark = pytest.mark.lab


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    found = Fleet(lab_hosts, tmp_path_factory.mktemp("drivers"))
    done = found.play("deploy.yml", nvidia_driver_version=FIRST)
    assert done.returncode == 0, done.stdout + done.stderr
    yield found
    found.repository.stop()


def test_what_forbids_a_roll_is_told_of_every_host_before_anything_is_touched(
    fleet: Fleet,
) -> None:
    before, boots = fleet.invocations(), fleet.boots()
    lock = "python3 /var/lib/opsctl/onhost.pyz {} kimi --run other"
    fleet.hosts["h2"].sh(lock.format("lock --owner me@desk --reason research"))
    done = fleet.roll(SECOND, nvidia_driver_allow_reboot=False)
    fleet.hosts["h2"].sh(lock.format("unlock"))
    assert done.returncode == 2 and "nothing was touched" in said(done)
    for words in (
        f"h1: driver: driver {FIRST} → {SECOND} needs a reboot, and none is allowed",
        " -e nvidia_driver_allow_reboot=true",
        "kimi is locked by me@desk since 20",
        "opsctl unlock kimi",
    ):
        assert words in said(done)
    assert (fleet.invocations(), fleet.boots()) == (before, boots)


@pytest.mark.parametrize("more", [["-e", "nvidia_driver_allow_reboot=no"], ["--check"]])
def test_deploy_replaces_no_driver_under_services_that_serve(fleet: Fleet, more: list[str]) -> None:
    """The stand-in holds no GPU open, as an engine that is about to start: its unit tells."""
    before, boots = fleet.invocations(), fleet.boots()
    done = fleet.play("deploy.yml", *more, nvidia_driver_version=SECOND, **REBOOT)
    text = said(done)
    assert done.returncode == 2
    words = f"driver {FIRST} is in use by {SERVICE} (active) and is not replaced under it (due: "
    assert text.count(words) >= 2  # of both hosts
    book = share() / "playbooks" / "upgrade_driver.yml"
    assert f"ansible-playbook -i {fleet.folder / 'inventory'} {book} -e '" in text
    assert (fleet.invocations(), fleet.boots()) == (before, boots)
    versions = fleet.ask("dpkg-query -W -f '${Version}' nvidia-open")
    assert set(versions.values()) == {f"{FIRST}-1"}


@pytest.mark.parametrize("no", ["no", "false"])
def test_no_means_no(fleet: Fleet, no: str) -> None:
    asked = ["--limit", "h1", "--check", "-e", f"nvidia_driver_allow_reboot={no}"]
    done = fleet.roll(SECOND, *asked)
    assert done.returncode == 2 and "needs a reboot, and none is allowed" in said(done)


OLD = {"sglang_overrides": {"kimi": {"engine": {"version": "0.5.23"}}}}


def test_an_engine_that_the_driver_would_be_too_old_for_refuses_it(fleet: Fleet) -> None:
    asked = {"nvidia_driver_allow_downgrade": True, **OLD}
    done = fleet.roll("570.133.20", "--limit", "h1", "--check", **asked)
    words = "service kimi: SGLang 0.5.23 needs NVIDIA driver 580.65.06 or newer, 570.133.20 is"
    assert words in said(done)


def test_check_tells_the_plan_and_changes_nothing(fleet: Fleet) -> None:
    """In the order of the roll: the canary first."""
    before = fleet.invocations()
    done = fleet.roll(SECOND, "--check", "-e", "opsctl_canary=h2")
    assert done.returncode == 0, said(done)
    line = f": driver {FIRST} → {SECOND}: drain and stop kimi, packages, reboot, doctor, start kimi"
    first, second = said(done).index(f"h2{line}, gates"), said(done).index(f"h1{line}, gates")
    assert first < second
    assert fleet.invocations() == before and set(fleet.drivers().values()) == {FIRST}


def test_drivers_are_upgraded_host_by_host_and_one_always_serves(fleet: Fleet) -> None:
    boots = fleet.boots()
    with streams(fleet) as asked:
        done = fleet.roll(SECOND, "-e", "opsctl_canary=h2", "-e", "opsctl_reason=CVE")
    assert done.returncode == 0, said(done)
    text = said(done)
    assert text.index("h2 kimi: boot") < text.index("h2 kimi: confirmed") < text.index("h1 kimi: d")
    assert set(fleet.drivers().values()) == {SECOND}
    assert set(fleet.states().values()) == {"active"}
    assert set(fleet.ask("systemctl is-active nvidia-fabricmanager").values()) == {"active"}
    versions = fleet.ask("dpkg-query -W -f '${Version} ' nvidia-open nvidia-fabricmanager")
    assert set(versions.values()) == {f"{SECOND}-1 {SECOND}-1"}
    assert all(fleet.boots()[name] != boot for name, boot in boots.items())
    assert apart(asked["h1"], asked["h2"]), [stream.gaps for stream in asked.values()]
    assert all(len(stream.gaps) == 1 for stream in asked.values())
    left = fleet.ask(
        "ls /var/lib/opsctl/kimi/parked.json /var/lib/opsctl/kimi/lock.json 2>/dev/null"
    )
    assert set(left.values()) == {""}
    history = fleet.hosts["h1"].sh("tail -1 /var/lib/opsctl/kimi/history.jsonl").stdout
    assert f"CVE: driver {FIRST} → {SECOND}" in history and '"op": "start"' in history
    for name, stream in asked.items():
        print(f"{name}: black-out {stream.longest:.1f} s")


def test_packages_that_cannot_be_had_stop_nothing(fleet: Fleet) -> None:
    """h1 has its driver and is left alone; h2 is asked for one from a repository that is gone."""
    before = fleet.invocations()
    wish = fleet.folder / "inventory" / "host_vars"
    wish.mkdir()
    (wish / "h2.yml").write_text(f'nvidia_driver_branch: "590"\nnvidia_driver_version: {THIRD}\n')
    fleet.repository.stop()
    done = fleet.play("upgrade_driver.yml", **REBOOT)
    fleet.repository.serve()
    text = said(done)
    assert f"h1: driver {SECOND} is there and runs: nothing to do" in text
    assert done.returncode == 2 and "does not answer" in text
    assert "now: nothing was touched: its services serve as before" in text
    assert f"then again: ansible-playbook -i {fleet.folder / 'inventory'} " in text
    assert fleet.invocations() == before


DROPIN = f"/etc/systemd/system/{SERVICE}.d"
BROKEN = (  # what no doctor foresees
    f"mkdir {DROPIN}; printf '[Service]\\nExecStartPre=/bin/false\\n' > {DROPIN}/x.conf; "
    "systemctl daemon-reload"
)


def test_a_roll_that_failed_goes_on_where_it_failed(fleet: Fleet) -> None:
    """h2's engine cannot start. Whoever asks again, without the canary, does not lose h1."""
    before = fleet.invocations()["h1"]
    fleet.hosts["h2"].sh(BROKEN)
    failed = fleet.roll(THIRD, "-e", "opsctl_canary=h2")
    assert failed.returncode == 2 and "not touched: h1" in said(failed), said(failed)
    again = fleet.roll(THIRD)
    text = said(again)
    assert text.index(f"h2: driver {THIRD} runs, and it is parked") < text.index("h1: driver")
    assert again.returncode == 2 and "not touched: h1" in text
    assert fleet.invocations()["h1"] == before and fleet.states()["h1"] == "active"
    fleet.hosts["h2"].sh(f"rm -r {DROPIN}; systemctl daemon-reload")
    done = fleet.roll(THIRD)
    assert done.returncode == 0, said(done)
    assert set(fleet.drivers().values()) == {THIRD}
    assert set(fleet.states().values()) == {"active"}


DOWN = {"nvidia_driver_allow_downgrade": True}
LOCK = "/var/lib/opsctl/kimi/lock.json"


def test_who_interrupts_a_roll_is_told_where_it_stands_and_may_roll_again(fleet: Fleet) -> None:
    wish = {"nvidia_driver_version": SECOND, "nvidia_driver_branch": "580", **REBOOT, **DOWN}
    log = fleet.folder / "interrupted.out"
    with log.open("wb") as out:
        play = subprocess.Popen(
            fleet.command("upgrade_driver.yml", **wish), stdout=out, stderr=subprocess.STDOUT
        )
        until(lambda: "h1 kimi: drain" in log.read_text())
        play.send_signal(signal.SIGINT)
        assert play.wait(60) == 99
    until(lambda: "next: opsctl status --limit h1; opsctl unlock kimi" in log.read_text())
    assert "h1: interrupted" in log.read_text()
    run = json.loads(fleet.hosts["h1"].sh(f"cat {LOCK}").stdout)["run"]
    fleet.hosts["h1"].sh(f"python3 /var/lib/opsctl/onhost.pyz unlock kimi --run {run}")
    done = fleet.roll(SECOND, **DOWN)
    assert done.returncode == 0, said(done)
    history = fleet.hosts["h1"].sh("cat /var/lib/opsctl/kimi/history.jsonl").stdout
    assert "before anything was touched" not in history


def test_a_host_that_does_not_serve_keeps_the_others_up(fleet: Fleet) -> None:
    """It has its driver and is not parked: nothing of the roll would start it."""
    fleet.hosts["h2"].sh(f"systemctl stop {SERVICE}")
    done = fleet.roll(FIRST, "--limit", "h1,h2", "--check", **DOWN)
    fleet.hosts["h2"].sh(f"systemctl start {SERVICE}")
    text = said(done)
    assert done.returncode == 2
    # An engine that is stopped ends with the signal's code, which systemd may call a failure.
    assert "nothing was touched: kimi on h2 does not serve (" in text
    assert "), which this roll would not change, and h1 would be taken down meanwhile" in text
    assert "opsctl start kimi --limit h2; or, if it may stay down:" in text
