"""The lab itself: `up` prints one path, drills do what they say, binds are read-only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.lab

SCRIPT = Path(__file__).resolve().parents[2] / "opsctl" / "lab" / "lab.sh"


def opsctl(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "opsctl"), "lab", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_up_prints_only_the_inventorys_path(lab_hosts) -> None:  # type: ignore[no-untyped-def]
    done = opsctl("up", "1")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.removesuffix("\n"))
    assert "up: h1" in done.stderr
    hosts = yaml.safe_load((path / "hosts.yml").read_text())["kimi"]["hosts"]
    assert hosts == {"h1": {"ansible_host": lab_hosts[0].address}}


def test_up_again_leaves_a_host_as_it_is(lab_host) -> None:  # type: ignore[no-untyped-def]
    service = "systemctl show opsctl-rehearsal-machine -p MainPID --value"
    before = lab_host.sh(service).stdout
    assert opsctl("scenario", "h1", "odd-rank").returncode == 0
    assert opsctl("up", "1").returncode == 0
    assert lab_host.sh(service).stdout == before != "0\n"
    assert "odd-rank" in lab_host.sh("cat /etc/opsctl-rehearsal/scenario.toml").stdout


def test_status_and_ssh(lab_hosts) -> None:  # type: ignore[no-untyped-def]
    assert f"h2 up {lab_hosts[1].address}" in opsctl("status").stdout
    done = opsctl("ssh", "h2", "hostname; exit 7")
    assert (done.stdout, done.returncode) == ("h2\n", 7)


@pytest.mark.parametrize("how", ["down", "drop", "reject"])
def test_a_cut_host_answers_nothing_until_it_is_mended(lab_host, how: str) -> None:  # type: ignore[no-untyped-def]
    assert opsctl("cut", "h1", how).returncode == 0
    try:
        assert lab_host.sh("true", check=False).returncode == 255
    finally:
        assert opsctl("mend", "h1").returncode == 0
    assert lab_host.sh("hostname").stdout == "h1\n"


def test_a_frozen_host_accepts_and_says_nothing(lab_host) -> None:  # type: ignore[no-untyped-def]
    assert opsctl("freeze", "h1").returncode == 0
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            lab_host.sh("true", timeout=3)
    finally:
        assert opsctl("thaw", "h1").returncode == 0
    assert lab_host.sh("hostname").stdout == "h1\n"


def test_a_power_cut_keeps_the_disk(lab_host) -> None:  # type: ignore[no-untyped-def]
    lab_host.sh("echo kept > /root/kept && sync")
    assert opsctl("kill", "h1").returncode == 0
    assert "h1 stopped" in opsctl("status").stdout
    assert opsctl("start", "h1").returncode == 0
    assert lab_host.sh("cat /root/kept").stdout == "kept\n"


def test_binds_are_read_only_and_stay_after_a_power_cut(lab_hosts, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("from this machine\n")
    for verb in (["kill", "h2"], ["start", "h2"]):
        env = {**os.environ, "LAB_BIND": f"{tmp_path}:/opt/one,{tmp_path}:/opt/two"}
        subprocess.run(["bash", str(SCRIPT), *verb], env=env, check=True, capture_output=True)
    for verb in (["kill", "h2"], ["start", "h2"]):
        subprocess.run(["bash", str(SCRIPT), *verb], check=True, capture_output=True)
    h2 = lab_hosts[1]
    assert h2.sh("cat /opt/one/file /opt/two/file").stdout == "from this machine\n" * 2
    assert "Read-only file system" in h2.sh("touch /opt/one/x", check=False).stderr
