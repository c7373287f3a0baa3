"""The command against real hosts with a hand-made unit: what stands there before opsctl.

No engine and no release are needed for this; deployments are tested with the playbooks.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

LAB_SH = Path(__file__).parents[2] / "opsctl" / "lab" / "lab.sh"
ENGINE = r"""#!/bin/sh
for rank in 0 1; do
  echo "[2026-03-01 23:45:07 TP$rank] KV Cache is allocated. #tokens: 159277, KV size: 10.42 GB"
  echo "[2026-03-01 23:45:08 TP$rank] Allocating 44.77 GB host memory for hierarchical KV cache."
done
while :; do sleep 0.2; printf '[2026-03-01 23:45:09 TP1] \033[2Jline\n'; done
"""
UNIT = "[Service]\nExecStart=/root/engine --port 30000\n[Install]\nWantedBy=multi-user.target\n"
DESCRIPTION = """
sglang_services:
  kimi:
    model: {path: /srv/m}
    engine: {version: "0.5.9"}
    secrets: {api-key: canary-77b1}
"""


@pytest.fixture(scope="module")
def place(lab_hosts, tmp_path_factory):
    """An inventory with a hand-made service on h1, and nothing on h2."""
    h1 = lab_hosts[0]
    h1.put("/root/engine", ENGINE.encode(), "755")
    h1.put("/etc/systemd/system/sglang-kimi.service", UNIT.encode())
    h1.sh("systemctl daemon-reload && systemctl start sglang-kimi")
    folder = tmp_path_factory.mktemp("cli")
    inventory = folder / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    hosts = subprocess.run(
        ["bash", LAB_SH, "inventory"], capture_output=True, text=True, check=True
    )
    (inventory / "hosts.ini").write_text(hosts.stdout + "\n")
    (inventory / "group_vars" / "all.yml").write_text(DESCRIPTION)
    return folder


def command(place, *args):
    code = "from opsctl.cli.main import main; main()"
    environ = {
        **os.environ,
        "OPSCTL_INVENTORY": str(place / "inventory"),
        "XDG_CACHE_HOME": str(place / "cache"),
    }
    return {"args": [sys.executable, "-c", code, *args], "env": environ, "cwd": place}


def opsctl(place, *args):
    given = command(place, *args)
    return subprocess.run(
        given["args"], env=given["env"], cwd=given["cwd"], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_status_of_what_stood_there_before(place):
    done = opsctl(place, "status", "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (h1,), (h2,) = (host["services"] for host in document["hosts"])
    assert (h1["state"], h1["release"], h1["ranks"]["seen"]) == ("active", "0", 2)
    assert h1["kv"]["tokens"] == 159277
    assert [pool["bytes"] for pool in h1["host_pools"]] == [44770000000] * 2
    assert h1["memory"]["total"] > 2**30
    assert (h2["state"], h2["release"], h2["ranks"]["seen"]) == ("absent", None, 0)
    assert document["ok"] is False


def test_the_second_status_asks_no_ansible(place):
    opsctl(place, "status")
    (cache,) = (place / "cache" / "opsctl").iterdir()
    before = cache.stat().st_mtime_ns
    assert opsctl(place, "hosts").returncode == 0
    assert cache.stat().st_mtime_ns == before
    assert "canary" not in cache.read_text()
    (place / "inventory" / "group_vars" / "all.yml").write_text(DESCRIPTION + "# changed\n")
    opsctl(place, "status")
    assert cache.stat().st_mtime_ns > before


def test_verify_does_not_pass_it(place):
    done = opsctl(place, "verify", "--limit", "h1")
    assert done.returncode == 1
    assert "not deployed by opsctl" in done.stderr


def test_logs_of_one_rank(place):
    done = opsctl(place, "logs", "kimi", "--limit", "h1", "--rank", "TP0", "-n", "9")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert all(" TP0] " in line for line in done.stdout.splitlines())


def test_of_a_unit_of_other_hands_nothing_is_expected_and_nothing_is_called_unfinished(place):
    h1 = opsctl(place, "status", "--limit", "h1").stdout.splitlines()[1]
    assert "0 (not by opsctl)" in h1 and " 2 " in h1 and "?" not in h1
    told = opsctl(place, "memory", "--limit", "h1").stdout
    assert "opsctl did not write what runs" in told and "not over" not in told


def test_a_start_that_failed_is_seen_beside_the_one_that_serves(place, lab_hosts):
    h1 = lab_hosts[0]
    h1.sh(
        "mv /root/engine /root/engine.good; printf '#!/bin/sh\necho the cache is of another card; "
        "exit 3\n' > /root/engine; chmod 755 /root/engine; systemctl restart sglang-kimi; "
        "until systemctl is-failed sglang-kimi; do sleep 0.1; done; "
        "mv /root/engine.good /root/engine; systemctl start sglang-kimi; sleep 1; "
        "seq 2000 | systemd-cat -t noise; journalctl --sync"
    )
    said = opsctl(place, "logs", "kimi", "--limit", "h1", "--all-starts")
    assert said.returncode == 0, said.stderr
    starts = re.split(r"^──── h1: start of .*$", said.stdout, flags=re.MULTILINE)[1:]
    assert len(starts) == 3
    assert "the cache is of another card" in starts[1] and "TP0] KV Cache" in starts[2]
    assert all(len(start.splitlines()) <= 31 for start in starts)


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_following_logs_leaves_nothing_on_the_host(place, lab_hosts, end, code):
    given = command(place, "logs", "kimi", "--host", "h1", "-f", "-n", "1")
    running = subprocess.Popen(
        given["args"], env=given["env"], cwd=given["cwd"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        lines = [running.stdout.readline() for _ in range(4)]
        assert all(b"line" in line for line in lines)
        assert not any(b"\x1b" in line for line in lines)
        assert left(lab_hosts[0])
        running.send_signal(end)
        running.communicate(timeout=10)
    finally:
        running.kill()
    assert running.returncode == code
    gone = time.monotonic() + 15
    while left(lab_hosts[0]) and time.monotonic() < gone:
        time.sleep(0.2)
    assert left(lab_hosts[0]) == ""


def left(host):
    return host.sh("pgrep -af 'journalctl.*sglang-kimi'", check=False).stdout


def test_a_host_that_is_cut_off(place, lab_hosts):
    lab_hosts[1].lab("cut", "reject")
    try:
        done = opsctl(place, "status", "-o", "json")
    finally:
        lab_hosts[1].lab("mend")
    assert done.returncode == 4
    assert [host["reachable"] for host in json.loads(done.stdout)["hosts"]] == [True, False]
    assert "error: h2" in done.stderr
    assert "Traceback" not in done.stderr
