"""A rehearsal host: what `free` and `nvidia-smi` show before, while and after an engine runs."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsctl.lab import rehearse
from opsctl.rehearsal import wheel

pytestmark = pytest.mark.lab

FLAGS = (
    "--model-path=/srv/models/Kimi-K2.5 --served-model-name=kimi-k2.5 --tp-size=8 "
    "--mem-fraction-static=0.88 --enable-hierarchical-cache --hicache-ratio={ratio} "
    "--reasoning-parser=kimi_k2 --tool-call-parser=kimi_k2"
)
# As hard as a service's unit, as far as this test needs it.
UNIT = (
    "systemd-run --quiet --unit=play -p User=nobody -p KillMode=mixed -p PrivateTmp=yes "
    "-p ProtectSystem=full -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p Restart=no "
    "/opt/play/bin/python -m sglang.launch_server "
)
MIB = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"


@pytest.fixture(scope="module")
def host(lab_host: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A rehearsal host with the wheel installed by pip, hashes demanded."""
    folder = tmp_path_factory.mktemp("wheels")
    wheel.build("0.5.9", folder)
    rehearse.prepare(lab_host.name)  # type: ignore[attr-defined]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, "wheels")
    lab_host.put("/root/wheels.tar", packed.getvalue())  # type: ignore[attr-defined]
    lab_host.sh(  # type: ignore[attr-defined]
        "cd /root && tar xf wheels.tar && python3 -m venv /opt/play && "
        "/opt/play/bin/pip install --quiet --no-index --find-links wheels --require-hashes "
        "--requirement wheels/requirements-0.5.9.txt"
    )
    yield lab_host


def test_free_shows_the_scenarios_machine(host) -> None:  # type: ignore[no-untyped-def]
    assert host.sh("free -h").stdout.splitlines()[1].split()[1] == "449Gi"
    assert host.sh(MIB).stdout.split() == ["0"] * 8
    assert host.sh("nvidia-smi -L").stdout.count("RTX PRO 6000") == 8


def test_model_folders_have_the_real_apparent_size(host) -> None:  # type: ignore[no-untyped-def]
    listed = host.sh("stat -c %s /srv/models/Kimi-K2.5/*.safetensors").stdout.split()
    assert sum(map(int, listed)) == 547_000_000_000
    assert int(host.sh("du -sm /srv/models").stdout.split()[0]) < 100  # sparse on the disk


def test_a_start_takes_memory_and_its_end_gives_it_back(host) -> None:  # type: ignore[no-untyped-def]
    host.sh(UNIT + FLAGS.format(ratio="4.0"))
    loading = until(host, "pgrep -f ^sglang::scheduler_TP3")
    before = reads(host, loading)
    time.sleep(0.7)
    assert reads(host, loading) > before  # it really reads its model's files
    assert 1000 < int(host.sh(MIB).stdout.split()[0]) < 80000
    until(host, "journalctl -u play | grep -c 'fired up' | grep 1")
    _, total, used, *_, available = host.sh("free -h").stdout.splitlines()[1].split()
    assert (total, used, available) == ("449Gi", "370Gi", "78Gi")
    lines = host.sh("journalctl -u play -o cat | grep 'Allocating 44.77 GB host memory'").stdout
    assert sorted(line.split("TP")[1][0] for line in lines.splitlines()) == list("01234567")
    pids = host.sh('journalctl -u play -o json | grep 44.77 | grep -o \'"_PID":"[0-9]*"\'').stdout
    assert len(set(pids.split())) == 8  # each rank's lines come from its own process
    host.sh("systemctl stop play")
    assert host.sh("free -h").stdout.splitlines()[1].split()[-1] == "440Gi"
    assert host.sh(MIB).stdout.split() == ["0"] * 8
    assert "status=9/KILL" in host.sh("journalctl -u play").stdout  # as 0.5.9 ends


def test_its_first_line_says_what_it_is(host) -> None:  # type: ignore[no-untyped-def]
    said = host.sh("journalctl -u play -o cat _UID=$(id -u nobody)").stdout
    assert "REHEARSAL: no model is loaded" in said.splitlines()[0]


def test_memory_comes_back_after_a_power_cut(host) -> None:  # type: ignore[no-untyped-def]
    host.lab("kill")
    host.lab("start")
    assert host.sh("free -h").stdout.splitlines()[1].split()[1] == "449Gi"


def test_another_scenario_from_the_next_start(host) -> None:  # type: ignore[no-untyped-def]
    text = (Path(rehearse.REFERENCE).parent / "host-memory-refused.toml").read_text()
    rehearse.play(host.name, text)
    host.sh(UNIT + FLAGS.format(ratio="4.0"))
    until(host, "systemctl show play -p ActiveState | grep failed")
    assert "only have 39.03 GB free" in host.sh("journalctl -u play").stdout
    host.sh("systemctl reset-failed play")


def test_figures_that_the_file_does_not_have_end_it(host) -> None:  # type: ignore[no-untyped-def]
    rehearse.play(host.name, rehearse.REFERENCE.read_text())
    host.sh(UNIT + FLAGS.format(ratio="3.0"))
    until(host, "systemctl show play -p ActiveState | grep failed")
    assert "plays hicache-ratio 4.0 or 2.0, not 3.0" in host.sh("journalctl -u play").stdout
    assert "status=1/FAILURE" in host.sh("systemctl status play", check=False).stdout


def until(host, command: str, seconds: float = 20) -> str:  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done = host.sh(command, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return str(done.stdout).strip()
        time.sleep(0.2)
    raise AssertionError(f"{command} did not come true: {host.sh('journalctl -u play').stdout}")


def reads(host, pid: str) -> int:  # type: ignore[no-untyped-def]
    return int(host.sh(f"grep read_bytes /proc/{pid}/io").stdout.split()[1])
