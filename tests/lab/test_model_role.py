"""The role `model` on real hosts: a fetch outlives Ansible, a kill and a power cut, and goes on.

The source is a server of this machine's on the lab's bridge (tests/unit/ansible/model_source.py).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.lab import inventory as lab_inventory
from opsctl.lab import rehearse
from opsctl.paths import share
from opsctl.rehearsal import model_files, wheel
from tests.conftest import slay

_spec = importlib.util.spec_from_file_location(
    "model_source", share() / "tests" / "unit" / "ansible" / "model_source.py"
)
assert _spec is not None and _spec.loader is not None
src = importlib.util.module_from_spec(_spec)
sys.modules["model_source"] = src
_spec.loader.exec_module(src)

pytestmark = pytest.mark.lab

PATH = "/srv/models/Tiny"
BOOK = """\
- hosts: all
  gather_facts: false
  become: true
  pre_tasks:
    - {name: Describe, opsctl_describe: {}, run_once: true, register: told}
  roles:
    - role: model
      vars:
        model_folders: "{{ told.hosts[inventory_hostname].folders }}"
"""


class Fleet:
    """Hosts, what their descriptions say, and a playbook of the one role."""

    def __init__(self, hosts: list[Any], folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        inventory = {"all": {"hosts": {host.name: host.login for host in hosts}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
        (folder / "host_vars").mkdir(exist_ok=True)
        (folder.parent / "book.yml").write_text(BOOK)

    def describe(self, host: Any, source: dict[str, Any]) -> None:
        service = {"model": {"path": PATH, "source": source}, "engine": {"version": "0.5.9"}}
        said = yaml.safe_dump({"sglang_services": {"tiny": service}})
        (self.folder / "host_vars" / f"{host.name}.yml").write_text(said)

    def began(self, host: Any, *more: str, book: str = "") -> subprocess.Popen[str]:
        top = share()
        return subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("ansible-playbook")), "-v"),
                *("-i", str(self.folder), book or str(self.folder.parent / "book.yml")),
                *("--limit", host.name, *more),
            ],
            env={
                **os.environ,
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_ROLES_PATH": str(top / "roles"),
                "ANSIBLE_ACTION_PLUGINS": str(top / "playbooks" / "action_plugins"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def play(self, host: Any, *more: str, rc: int = 0, book: str = "") -> str:
        began = self.began(host, *more, book=book)
        said, _ = began.communicate(timeout=300)
        assert began.returncode == rc, said
        assert "CANARY" not in said
        return said


def model(shards: int = 3, size: int = 3_000_000) -> dict[str, bytes]:
    return dict(src.small_model(shards, size))


def hub(address: str, **more: Any) -> dict[str, Any]:
    return {"hub": "org/tiny", "revision": src.COMMIT, "endpoint": address, **more}


def whole(host: Any, files: dict[str, bytes]) -> None:
    """Exactly these files, by their hashes as the host computes them."""
    ask = f"cd {PATH}/ && find . -type f ! -name .opsctl-model.json -exec sha256sum {{}} +"
    rows = (line.split("  ./") for line in host.sh(ask).stdout.splitlines())
    assert {name: digest for digest, name in rows} == {
        name: hashlib.sha256(body).hexdigest() for name, body in files.items()
    }
    assert host.sh("ls -d /srv/models/.fetched/*.part", check=False).returncode != 0


def pid(host: Any) -> int:
    """The fetch's own process; 0 while there is none."""
    unit = host.sh("systemctl list-units --all --plain --no-legend 'opsctl-fetch-*'").stdout
    if not unit.strip():
        return 0
    return int(host.sh(f"systemctl show -P MainPID {unit.split()[0]}").stdout)


def until(what: Any, patience: float = 30.0) -> None:
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.1)


def bridge() -> str:
    return f"{os.environ.get('LAB_NET', '10.77.0')}.1"


@pytest.fixture(scope="module")
def fleet(lab_hosts: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("lab") / "inventory"
    folder.mkdir()
    yield Fleet(lab_hosts, folder)


@pytest.fixture
def stock() -> Any:
    return src.Stock(model(), token=src.TOKEN)


@pytest.fixture
def address(stock: Any) -> Iterator[str]:
    with src.served(stock, bridge()) as place:
        yield place


def test_killed_cut_off_and_powered_off_it_goes_on(fleet: Fleet, stock: Any, address: str) -> None:
    host = fleet.hosts[0]
    stock.rate = 300_000  # ten seconds a shard
    fleet.describe(host, hub(address, token=src.TOKEN))
    foretold = fleet.play(host, "--check", "--diff")
    assert "changed=1" in foretold and f"hub org/tiny {src.COMMIT}" in foretold
    assert host.sh("ls /srv/models", check=False).returncode != 0 and not stock.hits

    # Ansible is killed: the unit does not know of it.
    ansible = fleet.began(host)
    until(lambda: any(p.endswith(".safetensors") for p, _ in stock.hits))
    slay(ansible)
    first = pid(host)
    assert first
    secret = "grep -rl CANAR[Y] /proc/[0-9]*/cmdline /proc/[0-9]*/environ /srv 2>/dev/null"
    assert host.sh(secret, check=False).stdout == ""
    assert "CANARY" not in host.sh("journalctl --no-pager; systemctl show 'opsctl-fetch-*'").stdout
    job = host.sh("stat -c '%a %A' /run/opsctl/fetch/*/job.json /run/opsctl/fetch/*").stdout
    assert job.startswith("600 ") and "700 d" in job

    # The process is killed: systemd runs it again.
    host.sh(f"kill -KILL {first}")
    until(lambda: pid(host) not in (0, first))
    time.sleep(1.5)

    # The power is cut: the next run of the role goes on.
    host.lab("kill")
    host.lab("start")
    assert pid(host) == 0
    stock.rate = 0
    stock.hits.clear()
    done = fleet.play(host)
    assert "changed=1" in done, done
    whole(host, stock.files)

    assert "changed=0" in fleet.play(host, "--diff")


def test_what_failed_is_told_in_words(fleet: Fleet, stock: Any, address: str) -> None:
    host = fleet.hosts[1]
    fleet.describe(host, hub(address))
    said = fleet.play(host, rc=2)
    assert "HTTP 401: model.source.token is missing, wrong, or has no access" in said
    assert "without that no repeat helps" in said and "run it again" not in said
    # Nobody listens: told while it is tried again. The corrected description is fetched from there.
    fleet.describe(host, hub(f"http://{bridge()}:9", token=src.TOKEN))
    waiting = fleet.began(host)
    assert waiting.stdout is not None
    rows = iter(waiting.stdout.readline, "")
    assert any(f"h2: http://{bridge()}:9" in row and "Connection refused" in row for row in rows)
    slay(waiting)
    fleet.describe(host, hub(address, revision="f" * 40))
    other = fleet.play(host, rc=2)
    assert "another revision is being fetched" in other and "Connection refused" in other
    stop = re.search(r"systemctl stop (opsctl-fetch-\w+\.service)", other)
    assert stop and host.sh(stop[0]).returncode == 0
    assert host.sh(f"ls {PATH}", check=False).returncode != 0
    fleet.describe(host, {"peer": "gpu-99"})
    assert "is no other host of the inventory" in fleet.play(host, rc=2)


def test_from_a_peer_with_the_hashes_that_it_was_fetched_with(fleet: Fleet, stock: Any) -> None:
    """After the test above h1 has the model; h2's root may log in there."""
    peer, host = fleet.hosts
    fleet.describe(host, {"peer": peer.name})
    refused = fleet.play(host, rc=2)
    assert "rsync ended with" in refused and not pid(host)
    key = host.sh("ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; cat /root/.ssh/*.pub")
    peer.sh("mkdir -p /root/.ssh && cat >> /root/.ssh/authorized_keys", input=key.stdout)
    host.sh(f"ssh-keyscan -t ed25519 {peer.address} >> /root/.ssh/known_hosts 2>/dev/null")
    assert "changed=1" in fleet.play(host)
    whole(host, stock.files)
    stamp = host.sh(f"cat {PATH}/.opsctl-model.json").stdout
    assert '"checked": false' not in stamp
    assert "changed=0" in fleet.play(host)

    # A byte that changes at the peer without its size does not pass.
    host.sh(f"rm -rf {PATH} /srv/models/.fetched")
    shard = f"{PATH}/model-00001-of-00003.safetensors"
    peer.sh(f"printf X | dd of={shard} bs=1 seek=1000 conv=notrunc status=none")
    said = fleet.play(host, rc=2)
    assert "model-00001-of-00003.safetensors has the hash sha256:" in said
    assert host.sh(f"ls {PATH}", check=False).returncode != 0


def test_a_whole_deployment_fetches_its_model_first(fleet: Fleet, tmp_path: Path) -> None:
    """deploy.yml on a host that has nothing: environment, model from a mirror, service, gates; then
    another revision, which is not put under the feet of the service that runs."""
    host, deploy = fleet.hosts[1], str(share() / "playbooks" / "deploy.yml")
    host.sh("rm -rf /srv/models")
    version, model = "0.5.23", tmp_path / "tiny"
    rehearse.prepare(host.name, share() / "opsctl" / "rehearsal/scenarios/small-0.5.23.toml")
    wheel.build(version, fleet.folder.parent / "wheels")
    model_files.make(model, model_files.TINY, 3_000_000, 1)
    stock = src.Stock({p.name: p.read_bytes() for p in model.iterdir()})
    text = lab_inventory.SMALL.format(version=version, wheels="../wheels")
    with src.served(stock, bridge()) as address:
        said = yaml.safe_load(text)
        source = {"url": f"{address}/plain", "limit": "2MB"}
        said["sglang_services"]["tiny"]["model"] = {"path": PATH, "source": source}
        (fleet.folder / "host_vars" / f"{host.name}.yml").write_text(yaml.safe_dump(said))
        done = fleet.play(host, "--diff", book=deploy)
        assert f"+url {address}/plain" in done, done
        whole(host, stock.files)
        running = "systemctl show -P InvocationID,ActiveState sglang-tiny"
        before = host.sh(running).stdout
        assert "active" in before.split() and len(before.split()) == 2
        asked = len(stock.hits)
        assert "changed=0" in fleet.play(host, book=deploy)
        assert len(stock.hits) == asked  # a model that stands is not asked for again
        stock.files["config.json"] += b"\n"
        changed = {**source, "manifest_sha256": hashlib.sha256(stock.manifest()).hexdigest()}
        said["sglang_services"]["tiny"]["model"]["source"] = changed
        (fleet.folder / "host_vars" / f"{host.name}.yml").write_text(yaml.safe_dump(said))
        refused = fleet.play(host, rc=2, book=deploy)
    assert "another revision is described, and process" in refused
    assert "another model.path" in refused and host.sh(running).stdout == before
