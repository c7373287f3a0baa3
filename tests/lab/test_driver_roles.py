"""The roles nvidia_driver, cuda and host_tuning on a real Debian 12 host and a real repository.

The kernel's part is stood in (apt_repository.KERNEL): which module is loaded is a file that the
stand-in's modprobe and its unit at boot write. apt, dpkg, gpgv, systemd and the reboot are real.
The tests build on each other, as an operator's day does.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl.ansible import program
from opsctl.ansible.nvidia_driver import refusal, with_key
from opsctl.ansible.target.openpgp import fingerprints
from opsctl.paths import share
from opsctl.remote.host import Answer
from tests.lab.apt_repository import KERNEL, Repository

pytestmark = pytest.mark.lab
OURS = "ls -A /etc/apt/sources.list.d /etc/apt/preferences.d /etc/apt/keyrings | grep opsctl"
DEPLOY = share() / "playbooks" / "deploy.yml"
SETTLED = {"changed": False, "problems": [], "reboot": []}


class Machine:
    """A lab host, its repository, and an inventory to reach it by."""

    def __init__(self, host: Any, repository: Repository, folder: Path) -> None:
        self.host, self.repository, self.folder, self.name = host, repository, folder, host.name
        reached = {"all": {"hosts": {host.name: host.login}}}
        (folder / "hosts.yml").write_text(yaml.safe_dump(reached))
        roles = [{"role": name} for name in ("nvidia_driver", "cuda", "host_tuning")]
        kimi = {"model": {"path": "/srv/models/kimi"}, "engine": {"version": "0.5.9"}}
        (folder / "group_vars").mkdir()
        (folder / "group_vars" / "all.yml").write_text(
            yaml.safe_dump({"sglang_services": {"kimi": kimi}})
        )
        play = {"hosts": "all", "gather_facts": False, "become": True, "roles": roles}
        (folder / "roles.yml").write_text(yaml.safe_dump([play]))

    def run(self, argv: Any, *, stdin: bytes = b"", **_: Any) -> Answer:
        done = self.host.sh(shlex.join(argv), check=False, input=stdin.decode())
        return Answer(done.returncode, done.stdout, done.stderr)

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.asc")

    def driver(self, repo: str = "good", key: str = "good", **more: Any) -> dict[str, Any]:
        """The program itself, without Ansible around it."""
        asked = {"url": self.repository.url(repo), "key": self.key(key)}
        args = {"branch": "580", "version": "", "fabric_manager": "yes", "persistence": True}
        args |= {"hold": True, "allow_downgrade": False, "allow_repair": False, "check": False}
        args |= {"repository": with_key(asked, "")} | more
        return program.run(self, "nvidia_driver", args)  # type: ignore[arg-type]

    def refused(self, *words: str, **more: Any) -> bool:
        """Whether anything was changed before that."""
        found = self.driver(**more)
        assert len(found["problems"]) == 1, found
        for word in words:
            assert word in found["problems"][0]
        assert not found["changed"] or "repository" not in more
        return bool(found["changed"])

    def play(
        self, *more: str, book: str = "roles.yml", **variables: Any
    ) -> subprocess.CompletedProcess[str]:
        asked = {"url": self.repository.url("good"), "key": self.key("good")}
        said = {"nvidia_driver_repository": asked, "nvidia_driver_fabric_manager": "yes"}
        said |= {"nvidia_driver_branch": "580", "nvidia_driver_reboot_timeout": 60} | variables
        tool = str(Path(sys.executable).with_name("ansible-playbook"))
        return subprocess.run(
            [tool, "-i", "hosts.yml", book, "-e", json.dumps(said), *more],
            cwd=self.folder,
            env=os.environ
            | {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_ROLES_PATH": str(share() / "roles")}
            | {"ANSIBLE_ACTION_PLUGINS": str(share() / "playbooks" / "action_plugins")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def versions(self) -> dict[str, str]:
        ask = "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*' libcuda1"
        rows = [line.split() for line in self.host.sh(ask, check=False).stdout.splitlines()]
        return {row[0]: row[1] for row in rows if len(row) == 2}


@pytest.fixture(scope="module")
def machine(boot_one: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("apt")
    (folder / "served").mkdir()
    repository = Repository(folder / "served")
    past = ("--faked-system-time", "20200101T000000!")
    repository.key("good")
    repository.key("other")
    repository.key("old", *past)
    repository.fill("good")
    repository.index("good", "good")
    repository.index("unsigned", None)
    repository.index("stale", "good", valid_days=-2)
    repository.index("old", "old", *past)
    repository.serve()
    for path, content in KERNEL.items():
        mode = "755" if content.startswith("#!") else "644"
        boot_one.put(path, content.encode(), mode)
    boot_one.sh("systemctl daemon-reload; systemctl enable --now -q lab-kernel.service")
    yield Machine(boot_one, repository, folder)
    repository.stop()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"key": "other"}, ("signed by another key", "nvidia_driver_repository.key")),
        ({"repo": "old", "key": "old"}, ("has expired",)),
        ({"repo": "stale"}, ("expired", "timedatectl")),
        ({"repo": "unsigned"}, ("is not signed",)),
        ({"repo": "nowhere"}, ("no repository", "curl -I")),
        ({"version": "580.99"}, ("no version 580.99", "580.95.05-1")),
        ({"branch": "570"}, ("has no version 570.*",)),
    ],
)
def test_what_is_wrong_with_a_repository_is_named_and_nothing_of_it_stays(
    machine: Machine, more: dict[str, Any], words: tuple[str, ...]
) -> None:
    stays = "version" in more or "branch" in more  # there the repository itself is right
    if more.get("key") == "old" and machine.host.sh("ls /usr/bin/sqv", check=False).stdout:
        # Debian 13 judges a signature by the time it was made, when this key was still good.
        words, stays = ("has no version 580.*",), True
    changed = machine.refused(*words, **more)
    assert stays or not changed
    assert bool(machine.host.sh(OURS, check=False).stdout) == stays
    assert machine.versions() == {}
    machine.host.sh("rm -f /etc/apt/sources.list.d/opsctl* /etc/apt/keyrings/opsctl*")


def test_a_repository_that_is_down_is_named_and_taken_back(machine: Machine) -> None:
    machine.repository.stop()
    assert not machine.refused(machine.repository.url("good"), "does not answer")
    machine.repository.serve()
    assert machine.host.sh(OURS, check=False).stdout == ""


def test_a_key_by_its_address_is_fetched_and_taken_by_its_fingerprint(machine: Machine) -> None:
    key = Path(machine.key("good"))
    (machine.repository.top / "good" / "key.asc").write_bytes(key.read_bytes())
    url = machine.repository.url("good")
    asked = {"url": url, "key": f"{url}key.asc", "fingerprint": "AB" * 20}
    found = machine.driver(repository=asked)
    assert "has fingerprint" in found["problems"][0] and not found["changed"]
    asked["fingerprint"] = fingerprints(key.read_bytes())[0]
    assert machine.driver(repository=asked, check=True)["problems"] == []


def test_check_mode_tells_and_changes_nothing(machine: Machine) -> None:
    """Through all of deploy.yml, to the engine, which nobody has put there."""
    asked = {"nvidia_driver_version": "580.65.06", "cuda_toolkits": ["12.9"]}
    done = machine.play("--check", "--diff", book=str(DEPLOY), **asked)
    said = " ".join((done.stdout + done.stderr).split())
    for words in (
        "580.65.06: headers, driver, fabric, persistence",
        "+cuda-toolkit-12-9",
        "GPUs are judged when the driver is installed",
        "/opt/sglang/0.5.9/bin/python is missing",
    ):
        assert words in said, said
    assert machine.host.sh(OURS, check=False).stdout == ""
    assert machine.versions() == {}


def test_a_driver_is_installed_pinned_held_and_loaded_without_a_reboot(machine: Machine) -> None:
    done = machine.play(nvidia_driver_version="580.65.06", cuda_toolkits=["13.0", "12.9"])
    assert done.returncode == 0, done.stdout + done.stderr
    found = machine.versions()
    assert set(found.values()) == {"580.65.06-1"}
    assert set(machine.host.sh("apt-mark showhold").stdout.split()) == set(found)
    ask = "cat /sys/module/nvidia/version; systemctl is-active nvidia-fabricmanager "
    said = machine.host.sh(ask + "nvidia-persistenced; cat /var/log/lab-initramfs").stdout
    assert said.split("\n")[:4] == ["580.65.06", "active", "active", "made anew"]
    upgrade = machine.host.sh("apt-mark unhold '*nvidia*' -qq; apt-get -s dist-upgrade").stdout
    assert "Inst nvidia" not in upgrade  # the pin holds even without the marks
    assert machine.host.sh("/usr/local/cuda/bin/nvcc").stdout.split()[4] == "13.0,"
    assert "12.9" in machine.host.sh("/usr/local/cuda-12.9/bin/nvcc").stdout


def test_a_second_run_changes_nothing_though_the_repository_is_down(machine: Machine) -> None:
    assert machine.driver(version="580.65.06")["changed"]  # the marks that were taken away
    machine.repository.stop()
    done = machine.play(nvidia_driver_version="580.65.06", cuda_toolkits=["13.0", "12.9"])
    machine.repository.serve()
    assert done.returncode == 0 and "changed=0" in done.stdout, done.stdout
    found = machine.driver(version="580.65.06")
    assert {key: found[key] for key in SETTLED} == SETTLED
    assert machine.host.sh("wc -l </var/log/lab-initramfs").stdout.strip() == "1"


def test_a_driver_in_use_is_not_replaced(machine: Machine) -> None:
    hold = (
        "touch /dev/nvidia0; systemd-run -q --unit sglang-kimi sh -c 'exec sleep 99 </dev/nvidia0'"
    )
    machine.host.sh(hold)
    words = ("driver 580.65.06 is in use by sleep", "a reboot)", "playbooks/upgrade_driver.yml")
    machine.refused(*words, version="580.95.05")
    assert set(machine.versions().values()) == {"580.65.06-1"}
    machine.host.sh("systemctl stop sglang-kimi; rm /dev/nvidia0")


RESTARTS = (  # an engine that ends again and again: at most moments it has no process at all
    "systemd-run -q --unit sglang-kimi -p Restart=always -p RestartSec=600 false; "
    "until [ $(systemctl show -P SubState sglang-kimi) = auto-restart ]; do sleep 0.1; done"
)
PARK = "mkdir -p /var/lib/opsctl/kimi; echo {} >/var/lib/opsctl/kimi/parked.json"


def test_nor_is_one_replaced_under_a_service_that_is_about_to_use_it(machine: Machine) -> None:
    machine.host.sh(RESTARTS)
    machine.refused("in use by sglang-kimi.service (activating) and is not", version="580.95.05")
    machine.host.sh(f"systemctl stop sglang-kimi; {PARK}")
    machine.refused("in use by sglang-kimi.service (parked) and is not", version="580.95.05")
    assert set(machine.versions().values()) == {"580.65.06-1"}
    machine.host.sh("rm -r /var/lib/opsctl/kimi")


def test_what_somebody_has_moved_beside_the_driver_is_brought_back_to_it(machine: Machine) -> None:
    """By hand, past pin and hold; and the marks are gone."""
    newer = machine.repository.top / "good" / "nvidia-persistenced_580.95.05-1_amd64.deb"
    machine.host.put("/root/newer.deb", newer.read_bytes(), "644")
    machine.host.sh("dpkg -i /root/newer.deb; apt-mark unhold -qq nvidia-persistenced")
    assert machine.versions()["nvidia-persistenced"] == "580.95.05-1"
    found = machine.driver(version="580.65.06")
    assert (found["problems"], found["parts"], found["warnings"]) == ([], ["persistence"], [])
    assert set(machine.versions().values()) == {"580.65.06-1"}
    assert set(machine.host.sh("apt-mark showhold").stdout.split()) == set(machine.versions())
    assert not machine.driver(version="580.65.06")["changed"]


def test_an_upgrade_tells_the_reboot_it_needs_and_makes_it_where_allowed(machine: Machine) -> None:
    found = machine.driver(version="580.95.05")
    told = "a reboot is needed: the kernel runs driver 580.65.06, 580.95.05 is installed"
    assert found["problems"] == [] and told in refusal(found["reboot"])["msg"]
    assert set(machine.versions().values()) == {"580.95.05-1"}
    allowed = {"nvidia_driver_version": "580.95.05", "nvidia_driver_allow_reboot": True}
    done = machine.play(**allowed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.host.sh("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert machine.host.sh("systemctl is-active nvidia-fabricmanager").stdout.strip() == "active"
    found = machine.driver(version="580.95.05")
    assert {key: found[key] for key in SETTLED} == SETTLED


def test_a_downgrade_is_refused_unless_allowed(machine: Machine) -> None:
    machine.refused("a downgrade is refused", "allow_downgrade=true", version="580.65.06")
    found = machine.driver(version="580.65.06", allow_downgrade=True)
    assert found["problems"] == [] and len(found["reboot"]) == 1
    assert set(machine.versions().values()) == {"580.65.06-1"}


def test_half_installed_packages_are_told_and_mended_where_allowed(machine: Machine) -> None:
    machine.host.sh("touch /run/lab-dkms-fails")
    machine.refused("failed half way", "Bad return status", "dpkg --configure -a", branch="590")
    machine.host.sh("rm /run/lab-dkms-fails; touch /run/lab-dpkg-dies")
    words = ("nvidia-kernel-open-dkms", "dpkg --configure -a", "allow_repair=true")
    machine.refused(*words, branch="590")
    told = machine.driver(branch="590", allow_repair=True, check=True)
    assert (told["problems"], told["changed"], told["parts"]) == ([], True, ["driver"])
    assert machine.driver(branch="590", allow_repair=True)["problems"]  # killed while it mends
    machine.host.sh("rm /run/lab-dpkg-dies")
    machine.refused(*words, branch="590")
    found = machine.driver(branch="590", allow_repair=True)
    assert found["problems"] == [] and found["changed"]
    kept = machine.versions()
    assert set(kept.values()) == {"590.44.01-1"} and "nvidia-open-580" not in kept
    assert machine.host.sh("dpkg --audit").stdout == ""


@pytest.mark.parametrize("state", ["half-installed", "unpacked"])
def test_a_package_torn_while_it_was_unpacked_is_brought_anew(machine: Machine, state: str) -> None:
    """As a power cut leaves it: `dpkg --configure -a` is silent about it, or refuses to go on, and
    mends nothing."""
    name, ask = "cuda-toolkit-13-0", {"toolkits": ["13.0"], "default": "", "check": False}
    key = with_key({"url": machine.repository.url("good"), "key": machine.key("good")}, "")
    machine.host.sh(
        f"sed -i '/^Package: {name}$/,/^$/s/^Status: .*/Status: install reinstreq {state}/' "
        "/var/lib/dpkg/status; rm -r /usr/local/cuda-13.0"
    )
    for allowed, problems in ((False, 1), (True, 0)):
        asked = ask | {"repository": key, "allow_repair": allowed}
        found = program.run(machine, "cuda", asked)["toolkit"]  # type: ignore[arg-type]
        assert len(found["problems"]) == problems, found
        assert allowed or name in found["problems"][0]
    assert machine.host.sh("dpkg --audit").stdout == ""
    assert "13.0" in machine.host.sh("/usr/local/cuda-13.0/bin/nvcc").stdout


def test_settings_are_made_kept_and_put_back(machine: Machine) -> None:
    """/proc/sys is read-only in a lab host: a file stands in for the one setting."""
    key = "/proc/sys/vm/swappiness"
    machine.host.sh(f"echo 60 >/run/swappiness; mount --bind /run/swappiness {key}")
    before = machine.host.sh("df --output=size /dev/shm").stdout
    wish = {"swappiness": "10", "memlock": "unlimited", "shm_size": "96MiB"}
    args = {"settings": wish, "check": False}
    found = program.run(machine, "host_tuning", args)  # type: ignore[arg-type]
    assert (found["problems"], found["changed"]) == ([], True)
    said = machine.host.sh(f"cat {key} /etc/sysctl.d/90-opsctl.conf; df --output=size /dev/shm")
    assert "10\n" in said.stdout and "vm.swappiness = 10" in said.stdout and "98304" in said.stdout
    assert not program.run(machine, "host_tuning", args)["changed"]  # type: ignore[arg-type]
    args = {"settings": {"memlock": "unlimited"}, "check": False}
    assert program.run(machine, "host_tuning", args)["problems"] == []  # type: ignore[arg-type]
    assert machine.host.sh(f"cat {key}").stdout == "60\n"
    assert machine.host.sh("df --output=size /dev/shm").stdout == before
    left = machine.host.sh("ls /etc/sysctl.d /etc/systemd/system /etc/security/limits.d").stdout
    assert "91-opsctl-tuning.conf" in left
    assert "90-opsctl.conf" not in left and "opsctl-shm" not in left
