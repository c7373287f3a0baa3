"""The unmodified SGLang on the CPU, in a real host: deployed by deploy.yml, served, verified,
restarted, changed, rolled back; and its API key found nowhere.

0.5.9 runs in `make test`; 0.5.23 does the same in `make drills`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LabHost, boot

TOP = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
KEY = "canary-7f3a9c51e2d84b06"
PORT = 30009
ENGINES = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "opsctl" / "cpu-engine"

pytestmark = [pytest.mark.cpu_engine, pytest.mark.lab, pytest.mark.timeout(1500)]


def description(version: str, max_tokens: int) -> dict[str, Any]:
    """A tiny Llama on the CPU, as its owner would describe it (JSON is YAML)."""
    return {
        "sglang_services": {
            "tiny": {
                "model": {
                    "path": f"/opt/sglang/{version}/models/tiny-llama",
                    "served_name": "tiny-llama",
                },
                "engine": {"version": version},
                "port": PORT,
                "flags": {
                    "device": "cpu",
                    "attention-backend": "torch_native",
                    "sampling-backend": "pytorch",
                    "disable-cuda-graph": True,
                    "disable-overlap-schedule": True,
                    "enable-metrics": True,
                    "max-total-tokens": max_tokens,
                    "mem-fraction-static": 0.3,
                },
                "env": {
                    "SGLANG_USE_CPU_ENGINE": "1",
                    "HF_HUB_OFFLINE": "1",
                    "TORCHDYNAMO_DISABLE": "1",  # hosts have no compiler
                },
                "secrets": {"api-key": KEY},
                "memory": {"min_available": "1GiB"},
                "gates": {"soak": "2s", "poll": "0.5s", "max_tokens": 8},
                "timing": {"drain": "5s", "stall": "240s", "cap": "480s"},
            }
        }
    }


class Real:
    """One lab host with the real engine of one version mounted, and the tools to change it."""

    def __init__(self, version: str, host: LabHost, folder: Path) -> None:
        self.version, self.host, self.folder = version, host, folder
        reached = {"cpu": {"hosts": {host.name: host.login}}}
        (folder / "hosts.yml").write_text(json.dumps(reached))

    def describe(self, max_tokens: int) -> None:
        group_vars = self.folder / "group_vars"
        group_vars.mkdir(exist_ok=True)
        (group_vars / "cpu.yml").write_text(json.dumps(description(self.version, max_tokens)))

    def run(self, *argv: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(BIN / argv[0]), *argv[1:]],
            cwd=TOP,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=900,
        )
        assert KEY not in done.stdout + done.stderr, f"{argv}: the API key was printed"
        assert done.returncode == rc, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(self) -> str:
        return self.run("ansible-playbook", "-i", str(self.folder), "playbooks/deploy.yml").stdout

    def opsctl(self, *argv: str, rc: int = 0) -> str:
        return self.run("opsctl", argv[0], "-i", str(self.folder), *argv[1:], rc=rc).stdout

    def service(self, verb: str = "status") -> dict[str, Any]:
        document = json.loads(self.opsctl(verb, "-o", "json"))
        (service,) = document["hosts"][0]["services"]
        return dict(service)

    def invocation(self) -> str:
        return self.host.sh("systemctl show -P InvocationID sglang-tiny.service").stdout.strip()


@pytest.fixture(scope="module", params=["0.5.9", pytest.param("0.5.23", marks=pytest.mark.drill)])
def real(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Real]:
    version: str = request.param
    engine = ENGINES / version
    if not (engine / ".stamp").exists():
        pytest.fail(f"no engine in {engine}: run tools/cpu_engine.sh {version}")
    os.environ["LAB_BIND"] = f"{engine}:/opt/sglang/{version}"
    try:
        yield Real(version, boot(1)[0], tmp_path_factory.mktemp("inventory"))
    finally:
        del os.environ["LAB_BIND"]


def test_the_real_engine_is_deployed_served_verified_restarted_and_rolled_back(real: Real) -> None:
    real.describe(4096)
    real.deploy()
    first = real.service("verify")
    assert first["state"] == "active" and first["kv"]["tokens"] == 4096
    assert first["ranks"] == {"expected": 1, "seen": 1}
    failed = [c for c in first["checks"] if c["status"] == "fail"]
    assert failed == []
    passed = {c["id"] for c in first["checks"] if c["status"] == "pass"}
    assert {"unit", "health", "generation", "memory"} <= passed

    # A second run changes and restarts nothing.
    before = real.invocation()
    assert "changed=0" in real.deploy()
    assert real.invocation() == before

    real.opsctl("restart", "--yes", "--reason", "test")
    assert real.invocation() != before
    assert real.service()["kv"]["tokens"] == 4096

    real.describe(2048)
    real.deploy()
    second = real.service()
    assert second["kv"]["tokens"] == 2048 and second["release"] != first["release"]

    real.opsctl("rollback", "--yes", "--reason", "test")
    third = real.service("verify")
    assert third["kv"]["tokens"] == 4096 and third["release"] == first["release"]
    assert [c for c in third["checks"] if c["status"] == "fail"] == []


def test_the_api_key_stands_nowhere_but_in_its_file(real: Real) -> None:
    """After the whole life above: argv, environment in the unit, journal, files, and the start-up
    line in which the engine prints its own arguments."""
    host = real.host
    # As it is kept: in JSON a line with \r or ESC would be a list of numbers, and hide the key.
    journal = host.sh("journalctl -o export --all --no-pager | tr -cd '[:print:]\\n'").stdout
    assert "server_args=" in journal, "the engine did not print its arguments: nothing is proven"
    assert KEY not in journal
    # The words to look for come from a file: on a command line grep would find itself.
    places = host.sh(
        "cat >/dev/shm/key; grep -rlaF -f /dev/shm/key /proc/[0-9]*/cmdline /etc /var/lib/opsctl "
        "/var/log /run/systemd 2>/dev/null; "
        "systemctl show 'sglang-*' 'opsctl-*' | grep -cF -f /dev/shm/key; rm /dev/shm/key",
        input=KEY,
    ).stdout.split()
    allowed = [p for p in places if "/secrets/api-key" in p or p == "0" or "/credentials/" in p]
    assert places == allowed, places
    assert any("/secrets/api-key" in p for p in places), "the key's own file was not found"
    modes = host.sh("stat -c '%a %U' /etc/opsctl/tiny/releases/*/secrets/*").stdout.split("\n")
    assert set(filter(None, modes)) == {"600 root"}
    status = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:30009/v1/models"
    assert host.sh(status).stdout == "401"
