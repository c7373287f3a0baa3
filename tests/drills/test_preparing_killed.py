"""The roles `engine` and `cuda` are ended in the middle: the playbook by SIGKILL, or the host by a
power cut. The next run makes whole what stands half, and the one after it changes nothing.

The table in docs/drills.md is written from here.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.rehearsal import wheel
from tests.conftest import slay
from tests.lab.apt_repository import Repository

pytestmark = [pytest.mark.drill, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 8
ROWS = [
    "| role | ended | of them by a power cut | found half done | whole after the next run | "
    "changed by the run after |",
    "|---|---|---|---|---|---|",
]


class Fleet:
    def __init__(self, host: Any, folder: Path) -> None:
        self.host, self.folder = host, folder
        reached = {"all": {"hosts": {host.name: host.login}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(reached))

    def began(self, role: str, variables: dict[str, Any]) -> subprocess.Popen[str]:
        play = {"hosts": "all", "gather_facts": False, "become": True, "roles": [{"role": role}]}
        book = self.folder / f"{role}.yml"
        book.write_text(yaml.safe_dump([play]))
        share = {
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_ACTION_PLUGINS": str(ROOT / "playbooks" / "action_plugins"),
        }
        tool = str(Path(sys.executable).with_name("ansible-playbook"))
        words = [tool, "-i", str(self.folder / "hosts.yml"), str(book), "-e", json.dumps(variables)]
        return subprocess.Popen(
            words,
            env={**os.environ, **share},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def play(self, role: str, variables: dict[str, Any]) -> str:
        began = self.began(role, variables)
        said, _ = began.communicate(timeout=300)
        assert began.returncode == 0, said
        return said

    def end(
        self, role: str, variables: dict[str, Any], power: bool, begun: str, wait: float
    ) -> None:
        """Once `begun`, a command, succeeds on the host, and `wait` seconds later."""
        ansible = self.began(role, variables)
        patience = time.monotonic() + 60
        while self.host.sh(begun, check=False).returncode and ansible.poll() is None:
            assert time.monotonic() < patience, "it did not begin"
            time.sleep(0.05)
        time.sleep(wait)
        if power:
            self.host.lab("kill")
        slay(ansible)
        if power:
            self.host.lab("start")


@pytest.fixture(scope="module")
def fleet(boot_one: Any, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(boot_one, tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    folder = tmp_path_factory.mktemp("apt")
    (folder / "served").mkdir()
    made = Repository(folder / "served")
    made.key("good")
    made.fill("good")
    made.index("good", "good")
    made.serve()
    yield made
    made.stop()


def row(role: str, cuts: int, half: int) -> None:
    ROWS.append(f"| {role} | {ROUNDS} | {cuts} | {half} | {ROUNDS} | 0 |")
    print(ROWS[-1])


def test_an_environment(fleet: Fleet) -> None:
    made, spans, host = wheel.build("0.5.9", fleet.folder / "wheels"), random.Random(7), fleet.host
    install = {"requirements": str(made.requirements), "mirror": str(made.path.parent),
               "resolve": True}  # fmt: skip
    half = 0
    for number in range(ROUNDS):
        root = f"/opt/sglang/k{number}"
        wanted = {"version": "0.5.9", "root": root, "cuda": False, "install": install}
        told = {"engine_environments": [wanted]}
        begun = f"ls -d /opt/sglang/.builds/k{number}-*"
        fleet.end("engine", told, bool(number % 2), begun, spans.uniform(0.0, 4.0))
        half += host.sh(f"ls {root}", check=False).returncode != 0
        fleet.play("engine", told)
        ask = f"{root}/bin/python -c 'import importlib.metadata as m; print(m.version(\"sglang\"))'"
        assert host.sh(ask).stdout.strip() == "0.5.9+rehearsal"
        assert "changed=0" in fleet.play("engine", told)
        left = host.sh("ls -A /opt/sglang/.builds; ls -d /opt/sglang/.wheels", check=False).stdout
        names = {name for name in left.split() if not name.startswith(".lock")}
        assert len(names) == number + 1 and not any("tools" in name for name in names), left
    row("engine", ROUNDS // 2, half)


def test_a_disk_that_is_full(fleet: Fleet) -> None:
    """Told in words; nothing of it stays to fill the disk; then there is room."""
    made, host = wheel.build("0.5.9", fleet.folder / "wheels"), fleet.host
    install = {"requirements": str(made.requirements), "mirror": str(made.path.parent),
               "resolve": True}  # fmt: skip
    wanted = {"version": "0.5.9", "root": "/opt/full/0.5.9", "cuda": False, "install": install}
    host.sh("mkdir -p /opt/full && mount -t tmpfs -o size=6m none /opt/full")
    began = fleet.began("engine", {"engine_environments": [wanted]})
    said, _ = began.communicate(timeout=120)
    assert began.returncode == 2 and "MiB free: its disk is full" in said, said
    assert host.sh("ls -A /opt/full/.builds | grep -v lock", check=False).stdout == ""
    assert int(host.sh("df --output=pcent /opt/full | tail -1").stdout.strip(" %\n")) < 50
    host.sh("umount /opt/full")
    assert "changed=1" in fleet.play("engine", {"engine_environments": [wanted]})


def test_toolkits(fleet: Fleet, repository: Repository) -> None:
    spans, host, half = random.Random(8), fleet.host, 0
    asked = {"url": repository.url("good"), "key": str(repository.top.parent / "good.asc")}
    told = {"cuda_toolkits": ["13.0", "12.9"], "nvidia_driver_repository": asked}
    told["nvidia_driver_allow_repair"] = True
    # As long as a real one: cuda-toolkit is some gigabytes.
    host.put("/usr/local/sbin/update-alternatives", b"#!/bin/sh\nsleep 1\n"
             b"exec /usr/bin/update-alternatives \"$@\"\n", "755")  # fmt: skip
    for number in range(ROUNDS):
        begun = "pgrep -x dpkg || pgrep -x apt-get || test -e /usr/local/cuda-13.0"
        fleet.end("cuda", told, bool(number % 2), begun, spans.uniform(0.0, 3.0))
        state = host.sh("dpkg --audit; ls /var/lib/dpkg/updates").stdout
        half += bool(state.strip()) or "13.0" not in host.sh("ls /usr/local").stdout
        fleet.play("cuda", told)
        assert host.sh("dpkg --audit").stdout == ""
        assert "13.0" in host.sh("/usr/local/cuda/bin/nvcc").stdout
        assert "12.9" in host.sh("/usr/local/cuda-12.9/bin/nvcc").stdout
        assert "changed=0" in fleet.play("cuda", told)
        host.sh(
            "DEBIAN_FRONTEND=noninteractive apt-get -q -y purge 'cuda-toolkit*' ninja-build g++"
        )
    row("cuda", ROUNDS // 2, half)


def test_write_the_table() -> None:
    assert len(ROWS) == 4
    mark, path = "preparing-killed", ROOT / "docs" / "drills.md"
    start, end = f"<!-- {mark}: generated -->\n", f"<!-- /{mark} -->\n"
    title = (
        "## Preparing is ended in the middle\n\nWritten by `make drills`: the playbook of a role "
        "gets SIGKILL, or the host's power is cut, at a random moment after its work has begun. "
        "For `cuda`, `nvidia_driver_allow_repair` is set: else the role names what is half "
        "installed, and refuses.\n\n"
    )
    block = f"{start}{title}" + "\n".join(ROWS) + f"\n{end}"
    before, found, rest = path.read_text().partition(start)
    path.write_text(
        before + block + rest.partition(end)[2] if found else f"{before.rstrip()}\n\n{block}"
    )
