"""A model's fetch is ended at 50 random moments: 40 times by SIGKILL, 10 times by a power cut, with
faults of the server in between. Each time it goes on, and every file has the right hash in the end.
The table in docs/drills.md is written from here.
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.program import fetch_program

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("model_role", ROOT / "tests/lab/test_model_role.py")
assert _spec is not None and _spec.loader is not None
role = importlib.util.module_from_spec(_spec)
sys.modules["model_role"] = role
_spec.loader.exec_module(role)
src = role.src

pytestmark = [pytest.mark.drill, pytest.mark.timeout(1500)]

FAULTS = ("cut", "500", "wrong-range", "etag", "short", "corrupt", "no-range")
ALONE: list[str] = []  # what the last row is followed by
ROWS = [
    "| # | SIGKILL | power cut | faults of the server | model | served in all | in the end |",
    "|---|---|---|---|---|---|---|",
]


def launch(fleet: Any, host: Any) -> None:
    """Ansible begins the fetch, or finds it running, and is then killed."""
    ansible = fleet.began(host)
    role.until(lambda: role.pid(host) or ansible.poll() is not None, 60)
    assert ansible.poll() is None, ansible.communicate()[0]
    ansible.kill()
    ansible.communicate()


def kill(host: Any, spans: random.Random) -> None:
    role.until(lambda: role.pid(host), 30)
    time.sleep(spans.uniform(0.0, 2.0))
    running = role.pid(host)
    assert running, "it was done, or between two starts: nothing was killed"
    host.sh(f"kill -KILL {running}")
    role.until(lambda: role.pid(host) not in (0, running), 30)


@pytest.mark.parametrize("number", range(1, 6))
def test_killed_ten_times(lab_hosts: list[Any], tmp_path: Path, number: int) -> None:
    host, spans = lab_hosts[0], random.Random(number)
    (tmp_path / "inventory").mkdir()
    fleet = role.Fleet(lab_hosts, tmp_path / "inventory")
    host.sh("rm -rf /srv/models")
    files = dict(src.small_model(4, 16_000_000))
    shards = [name for name in files if name.endswith(".safetensors")]
    faults = {name: spans.choices(FAULTS, k=3) for name in shards}
    told = sorted({fault for row in faults.values() for fault in row})
    stock = src.Stock(files, faults=faults, token=src.TOKEN, rate=150_000)
    with src.served(stock, role.bridge()) as address:
        fleet.describe(host, role.hub(address, token=src.TOKEN))
        launch(fleet, host)
        ends = ["kill"] * 8 + ["power"] * 2
        spans.shuffle(ends)
        for end in ends:
            if end == "kill":
                kill(host, spans)
            else:
                time.sleep(spans.uniform(0.0, 2.0))
                host.lab("kill")
                host.lab("start")
                launch(fleet, host)
            assert host.sh(f"ls {role.PATH}", check=False).returncode != 0
        stock.rate = 0
        fleet.play(host)  # it may have come to its end by itself meanwhile
        role.whole(host, files)
        assert "changed=0" in fleet.play(host)
    size = sum(map(len, files.values()))
    ROWS.append(
        f"| {number} | 8 | 2 | {', '.join(told)} | {size / 1e6:.0f} MB | {stock.sent / 1e6:.0f} MB "
        "| every hash right; a second run changes nothing |"
    )
    print(ROWS[-1])


def test_the_program_alone_killed_fifty_times(tmp_path: Path) -> None:
    """Without systemd and Ansible, on this machine: one fetch, SIGKILL at 50 random moments."""
    path, spans = tmp_path / "models" / "Tiny", random.Random(50)
    (tmp_path / "fetch.py").write_text(fetch_program())
    files = dict(src.small_model(4, 32_000_000))
    stock, resumed = src.Stock(files, rate=1_500_000), 0
    with src.served(stock) as address:
        job = {"path": str(path), "source": role.hub(address), "token": None, "wait": 0.01}
        (tmp_path / "job.json").write_text(json.dumps(job))
        for _ in range(50):
            before = len(stock.hits)
            began = subprocess.Popen([sys.executable, "-I", "-S", str(tmp_path / "fetch.py")])
            role.until(lambda before=before: len(stock.hits) > before, 60)
            time.sleep(spans.uniform(0.0, 0.6))
            assert began.poll() is None and not path.exists()
            began.kill()
            began.wait()
        stock.rate, resumed = 0, sum(1 for _, asked in stock.hits if asked)
        last = subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "fetch.py")], check=True)
    assert last.returncode == 0 and resumed
    assert all((path / name).read_bytes() == body for name, body in files.items())
    size = sum(map(len, files.values()))
    ALONE.append(
        f"The fetch alone, without systemd and Ansible: 50 times SIGKILL at random moments of one "
        f"fetch of {size / 1e6:.0f} MB; {stock.sent / 1e6:.0f} MB served in all, {resumed} answers "
        "from the middle of a file; every file as the source has it."
    )


def test_write_the_table() -> None:
    assert len(ROWS) == 7 and len(ALONE) == 1
    mark, path = "model-kills", ROOT / "docs" / "drills.md"
    start, end = f"<!-- {mark}: generated -->\n", f"<!-- /{mark} -->\n"
    title = (
        "## A model's fetch is killed\n\nWritten by `make drills`: a lab host fetches four files "
        "at once from a server that speaks a hub's interface, and is ended ten times in each "
        "fetch, at random moments. systemd runs it again after a SIGKILL, the role after a power "
        "cut. The lab's power cut loses no page cache; what a fetch had not synced it drops by "
        "itself.\n\n"
    )
    block = f"{start}{title}" + "\n".join(ROWS) + f"\n\n{ALONE[0]}\n{end}"
    before, found, rest = path.read_text().partition(start)
    path.write_text(
        before + block + rest.partition(end)[2] if found else f"{before.rstrip()}\n\n{block}"
    )
