"""The roles `nvidia_driver` and `cuda` by the real dnf, rpm and versionlock, with module streams.

No root file system of RHEL 9 can be built here: the host is Debian 12 with dnf, and says of itself
in /etc/os-release that it is RHEL 9. What runs is dnf 4.14 and rpm 4.18, which RHEL 9 has, too.

It needs a lab whose hosts have dnf: test_other_systems.py builds one and runs this there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from opsctl.ansible import program
from tests.lab.apt_repository import KERNEL
from tests.lab.rpm_repository import RpmRepository
from tests.lab.test_driver_roles import SETTLED, Machine

pytestmark = [pytest.mark.drill, pytest.mark.timeout(900)]

RHEL = (
    'NAME="Red Hat Enterprise Linux"\nVERSION="9.6 (Plow)"\nID="rhel"\nVERSION_ID="9.6"\n'
    'PLATFORM_ID="platform:el9"\nPRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\n'
)
OURS = "ls /etc/yum.repos.d /etc/pki/rpm-gpg 2>/dev/null | grep opsctl"


class RpmMachine(Machine):
    def versions(self) -> dict[str, str]:
        ask = "rpm -qa --qf '%{NAME} %{VERSION}\\n' '*nvidia*'"
        rows = [line.split() for line in self.host.sh(ask, check=False).stdout.splitlines()]
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def locked(self) -> set[str]:
        rows = self.host.sh("dnf -q versionlock list").stdout.split()
        return {row.rpartition("-")[0].rpartition("-")[0] for row in rows}

    def cuda(self, **more: Any) -> dict[str, Any]:
        asked = self.driver_repository() | {"toolkits": ["13.0", "12.9"], "default": ""}
        asked |= {"allow_repair": False, "check": False} | more
        return dict(program.run(self, "cuda", asked)["toolkit"])  # type: ignore[arg-type]

    def driver_repository(self) -> dict[str, Any]:
        from opsctl.ansible.nvidia_driver import with_key

        asked = {"url": self.repository.url("good"), "key": self.key("good")}
        return {"repository": with_key(asked, "")}


@pytest.fixture(scope="module")
def machine(boot_one: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RpmMachine]:
    if (
        boot_one.sh(
            "command -v dnf && test -e /etc/dnf/plugins/versionlock.conf", check=False
        ).stdout
        == ""
    ):
        pytest.fail(f"no dnf on the host (LAB_EXTRA={os.environ.get('LAB_EXTRA', '')}): see above")
    folder = tmp_path_factory.mktemp("dnf")
    (folder / "served").mkdir()
    repository = RpmRepository(folder / "served")
    for name in ("good", "other"):
        repository.key(name)
    repository.fill_el9("good")
    repository.publish("good", "good")
    repository.serve()
    for path, content in {**KERNEL, "/etc/os-release": RHEL}.items():
        boot_one.sh(f"rm -f {path}")
        boot_one.put(path, content.encode(), "755" if content.startswith("#!") else "644")
    boot_one.sh(
        "systemctl daemon-reload; systemctl enable --now -q lab-kernel.service; rpm --initdb; "
        "mkdir -p /lib/modules/$(uname -r)/build /etc/yum.repos.d; "
        "printf '[main]\\nenabled = 0\\n' > /etc/dnf/plugins/local.conf"  # a repository of Debian's
    )
    yield RpmMachine(boot_one, repository, folder)
    repository.stop()


def test_a_repository_that_is_down_or_missing_is_named_and_taken_back(machine: RpmMachine) -> None:
    machine.refused("there is no repository at", "repomd.xml", repo="nowhere")
    machine.repository.stop()
    machine.refused(machine.repository.url("good"), "does not answer")
    machine.repository.serve()
    assert machine.host.sh(OURS, check=False).stdout == ""


def test_packages_of_another_key_are_refused_and_nothing_is_installed(machine: RpmMachine) -> None:
    found = machine.driver(key="other", version="580.65.06")
    assert "signed by another key" in found["problems"][0], found
    assert machine.versions() == {}
    machine.host.sh("rm -f /etc/yum.repos.d/opsctl* /etc/pki/rpm-gpg/*opsctl*")


def test_installed_of_the_branchs_stream_and_locked(machine: RpmMachine) -> None:
    found = machine.driver(version="580.65.06")
    assert found["problems"] == [] and found["changed"], found
    there = machine.versions()
    assert set(there.values()) == {"580.65.06"} and "nvidia-fabricmanager" in there
    assert machine.locked() == set(there)
    assert "580-open [e]" in machine.host.sh("dnf -q module list --enabled").stdout.replace(
        "[d]", ""
    )
    active = "systemctl is-active nvidia-fabricmanager nvidia-persistenced"
    assert machine.host.sh(active).stdout.split() == ["active"] * 2
    machine.host.sh("dnf -q -y upgrade")  # the locks hold
    assert machine.versions() == there


def test_a_second_run_changes_nothing_though_the_repository_is_down(machine: RpmMachine) -> None:
    machine.repository.stop()
    found = machine.driver(version="580.65.06")
    machine.repository.serve()
    assert {key: found[key] for key in SETTLED} == SETTLED, found


def test_an_upgrade_moves_what_is_locked_and_locks_it_again(machine: RpmMachine) -> None:
    found = machine.driver(version="580.95.05")
    assert found["problems"] == [] and len(found["reboot"]) == 1, found
    assert set(machine.versions().values()) == {"580.95.05"}
    assert machine.locked() == set(machine.versions())
    listed = machine.host.sh("dnf -q versionlock list").stdout
    assert "580.65.06" not in listed, listed


def test_another_branch_is_another_stream(machine: RpmMachine) -> None:
    found = machine.driver(branch="590")
    assert found["problems"] == [], found
    assert set(machine.versions().values()) == {"590.44.01"}
    assert "590-open" in machine.host.sh("dnf -q module list --enabled").stdout


def test_a_downgrade_is_refused_unless_allowed(machine: RpmMachine) -> None:
    machine.refused("a downgrade is refused", branch="580")
    found = machine.driver(version="580.95.05", allow_downgrade=True)
    assert found["problems"] == [], found
    assert set(machine.versions().values()) == {"580.95.05"}
    assert machine.locked() == set(machine.versions())


def test_toolkits_side_by_side(machine: RpmMachine) -> None:
    found = machine.cuda()
    assert found["problems"] == [] and found["changed"], found
    assert "13.0" in machine.host.sh("/usr/local/cuda/bin/nvcc").stdout
    assert "12.9" in machine.host.sh("/usr/local/cuda-12.9/bin/nvcc").stdout
    assert not machine.cuda()["changed"]


def test_without_the_plugin_it_says_what_to_install(machine: RpmMachine) -> None:
    machine.host.sh("sed -i 's/enabled = 1/enabled = 0/' /etc/dnf/plugins/versionlock.conf")
    machine.refused("dnf install python3-dnf-plugin-versionlock", "nvidia_driver_hold")
