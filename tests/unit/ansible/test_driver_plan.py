"""What is to be done about a driver: tables of what a host told and what is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible import nvidia_driver as role
from opsctl.ansible.compatibility import least_drivers
from opsctl.ansible.target import driverfacts, driverpackages, driverplan, nvidia_driver
from opsctl.ansible.target.converge import Host, Refused
from opsctl.ansible.target.distro import SUPPORTED, layout

DEBIAN = {
    "nvidia-open": "580.95.05-1",
    "nvidia-kernel-open-dkms": "580.95.05-1",
    "nvidia-fabricmanager": "580.95.05-1",
    "nvidia-container-toolkit": "1.18.0-1",
}
UBUNTU = {
    "nvidia-headless-580-server-open": "580.95.05-0ubuntu0.24.04.2",
    "nvidia-dkms-580-server-open": "580.95.05-0ubuntu0.24.04.2",
    "nvidia-fabricmanager-580": "580.95.05-0ubuntu0.24.04.1",
}
RHEL = {"kmod-nvidia-open-dkms": "3:580.95.05-1.el9", "nvidia-fabricmanager": "580.95.05-1"}


def wish(**changes: Any) -> dict[str, Any]:
    base = {"branch": "580", "version": "", "fabric_manager": "auto", "persistence": True}
    return base | {"allow_downgrade": False} | changes


def facts(installed: dict[str, str], **changes: Any) -> dict[str, Any]:
    base = {"installed": installed, "loaded": None, "nvswitch": True, "headers": True}
    return base | {"persistence": True, "nouveau": False, "nvlink5": False} | changes


@pytest.mark.parametrize("installed", [DEBIAN, UBUNTU, RHEL])
def test_a_drivers_version_is_told_by_each_distributions_packages(
    installed: dict[str, str],
) -> None:
    assert driverplan.driver_of(installed) == "580.95.05"
    assert driverplan.version_of(installed, driverplan.FABRIC) == "580.95.05"
    assert driverplan.missing(facts(installed), wish()) == []


B200 = facts({}, nvswitch=False, nvlink5=True)
OLD_FABRIC = DEBIAN | {"nvidia-fabricmanager": "580.65.06-1"}


@pytest.mark.parametrize(
    ("found", "asked", "parts"),
    [
        (facts({}), wish(), ["driver", "fabric", "persistence"]),
        (facts({}, headers=False), wish(persistence=False), ["headers", "driver", "fabric"]),
        (facts({}, nvswitch=False), wish(), ["driver", "persistence"]),
        (
            facts({}, nvswitch=False),
            wish(fabric_manager="yes"),
            ["driver", "fabric", "persistence"],
        ),
        (facts(DEBIAN), wish(fabric_manager="no"), []),
        (facts(DEBIAN, headers=False), wish(), ["headers"]),
        (facts(DEBIAN, persistence=False), wish(), ["persistence"]),
        (facts(OLD_FABRIC), wish(), ["fabric"]),
        (facts(OLD_FABRIC, nvswitch=False), wish(), []),
        # HGX B200: no switch on the bus, a bridge to them; nvlsm has versions of its own
        (B200, wish(), ["driver", "fabric", "subnet", "persistence"]),
        (B200 | {"installed": DEBIAN}, wish(), ["subnet"]),
        (B200 | {"installed": DEBIAN | {"nvlsm": "2025.03.1-1"}}, wish(), []),
        (B200 | {"installed": DEBIAN}, wish(fabric_manager="no"), []),
        (B200 | {"installed": DEBIAN}, wish(fabric_manager="yes"), ["subnet"]),
        (facts(DEBIAN), wish(version="580.105.08"), ["driver", "fabric", "persistence"]),
        (facts(DEBIAN), wish(branch="590"), ["driver", "fabric", "persistence"]),
        (facts(DEBIAN), wish(branch="570", allow_downgrade=True), None),
    ],
)
def test_parts_that_are_missing(found: Any, asked: Any, parts: list[str] | None) -> None:
    expected = parts if parts is not None else ["driver", "fabric", "persistence"]
    assert driverplan.missing(found, asked) == expected


@pytest.mark.parametrize(
    ("found", "asked", "words"),
    [
        (
            facts(DEBIAN),
            wish(branch="570"),
            "driver 580.95.05 is installed, 570 is asked for by nvidia_driver_branch: a downgrade "
            "is refused. Set nvidia_driver_branch to 580 or newer, or",
        ),
        (
            facts(DEBIAN),
            wish(version="580.65.06"),
            "asked for by nvidia_driver_version: a downgrade is refused. "
            "Set nvidia_driver_version to 580.95.05 or newer, or allow it: ",
        ),
        (
            facts(DEBIAN),
            wish(version="570.133.20", branch="570"),
            "Set nvidia_driver_branch and nvidia_driver_version to those of 580.95.05 or newer",
        ),
        (facts(DEBIAN), wish(version="580.95.5.1", branch="590"), "is not of nvidia_driver_branch"),
        (facts({}, loaded="575.57.08"), wish(), "no package owns it.*nvidia-uninstall"),
    ],
)
def test_what_is_refused(found: Any, asked: Any, words: str) -> None:
    with pytest.raises(Refused, match=words):
        driverplan.missing(found, asked)


def test_versions_are_compared_by_their_numbers_not_their_letters() -> None:
    assert driverplan.order("580.105.08") > driverplan.order("580.95.05")
    url, there = "http://m/", ["580.95.05-1", "580.105.08-1", "590.44.01-1"]
    assert driverplan.chosen("nvidia-open", there, wish(), url) == "580.105.08-1"
    with pytest.raises(Refused, match=r"nvidia-open: http://m/ has no version 570\.\*; it has 580"):
        driverplan.chosen("nvidia-open", there, wish(branch="570"), url)
    with pytest.raises(Refused, match="it has no version of it at all"):
        driverplan.chosen("nvidia-open", [], wish(), url)


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("580.95.05-1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("580.95.05-0ubuntu0.24.04.2", "580.95.05"),
        ("535.247.01-1~deb12u1", "535.247.01"),
    ],
)
def test_upstream(version: str, upstream: str) -> None:
    assert driverplan.upstream(version) == upstream


OURS = {"pid": 7, "name": "sglang::schedul", "unit": "sglang-kimi.service"}
OTHER = {"pid": 8, "name": "python3", "unit": "train.service"}
ALONE = {"pid": 9, "name": "python3", "unit": ""}
WAITS = {"unit": "sglang-kimi.service", "state": "activating"}
TYPED = "ansible-playbook -i inv playbooks/upgrade_driver.yml"


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ([OURS], "(PID 7, sglang-kimi.service) and is not replaced under it (due: {due}): {}"),
        ([WAITS], "580.95.05 is in use by sglang-kimi.service (activating) and is not replaced"
                  " under it (due: {due}): {}"),
        ([OTHER], "systemctl stop train.service; then deploy again{more}"),
        ([ALONE], "end PID 9; then deploy again{more}"),
        ([WAITS, OTHER, ALONE], "systemctl stop train.service; end PID 9; then {}"),
    ],
)  # fmt: skip
def test_a_driver_in_use_is_refused_by_the_unit_that_uses_it(
    users: list[dict[str, Any]], words: str
) -> None:
    allow = " -e nvidia_driver_allow_reboot=true"
    asked = wish(roll=TYPED, roll_rebooting=TYPED + allow)
    found = facts(DEBIAN, loaded="580.95.05", companions={"nvidia-settings": "580.95.05-1"})
    for part, reboot, due in (
        ("driver", True, "driver 580.*, nvidia-settings 580.*, a reboot"),
        ("fabric", False, "fabric manager 580.95.05, nvidia-settings 580.95.05"),
        ("companions", False, "nvidia-settings 580.95.05"),
    ):
        more = allow if reboot else ""
        roll = f"host by host, behind doctor and gates, it is done by: {TYPED}{more}"
        with pytest.raises(Refused) as refused:
            driverplan.refuse_in_use(users, [part], found, asked)
        again = f" with{more}" if reboot else ""
        assert str(refused.value).endswith(words.format(roll, due=due, more=again))
    driverplan.refuse_in_use(users, ["headers", "persistence"], found, asked)
    driverplan.refuse_in_use(users, ["driver"], facts({}), asked)  # there is nothing to replace
    driverplan.refuse_in_use([], ["driver", "fabric"], found, asked)


def test_how_the_roll_is_typed_where_a_reboot_is_not_allowed_yet() -> None:
    run = ["ansible-playbook", "-i", "inv", "playbooks/deploy.yml", "--check"]
    typed = role.rolls([*run, "-e", "nvidia_driver_allow_reboot=no"], False)
    assert typed["roll"] == f"{TYPED} -e nvidia_driver_allow_reboot=no"
    assert typed["roll_rebooting"] == f"{typed['roll']} -e nvidia_driver_allow_reboot=true"
    assert role.rolls(run, True) == {"roll": TYPED}
    assert role.rolls(["pytest"], False)["roll_rebooting"].endswith(
        "upgrade_driver.yml -e nvidia_driver_allow_reboot=true"
    )


def test_a_service_uses_the_driver_though_it_holds_no_gpu_at_this_moment() -> None:
    cpu = {"unit": "sglang-embed.service", "state": "active"}
    assert driverplan.busy([], [WAITS, cpu], ["embed"]) == [WAITS]
    assert driverplan.busy([], [WAITS, cpu]) == [WAITS, cpu]  # a reboot ends that one, too
    assert driverplan.busy([OURS], [WAITS]) == [OURS]  # told once


LISTED = """\
sglang-kimi.service  loaded    active       running      SGLang kimi
sglang-glm.service   loaded    activating   auto-restart SGLang glm
sglang-qwen.service  loaded    deactivating stop-sigterm SGLang qwen
sglang-old.service   loaded    inactive     dead         SGLang old
sglang-bad.service   loaded    failed       failed       SGLang bad
sglang-gone.service  not-found inactive     dead         sglang-gone.service
"""


def test_services_that_run_start_again_or_are_to_run_again_are_seen(tmp_path: Path) -> None:
    found = {one["unit"]: one["state"] for one in driverfacts.engaged(LISTED)}
    assert found == {
        "sglang-kimi.service": "active",
        "sglang-glm.service": "activating",
        "sglang-qwen.service": "deactivating",
    }
    mark = tmp_path / "var/lib/opsctl/old/parked.json"
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    assert driverfacts.parked(str(tmp_path)) == ["sglang-old.service"]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"loaded": "580.95.05"}, 0),
        ({"loaded": "580.65.06"}, 1),
        ({"nouveau": True}, 1),
    ],
)
def test_a_reboot_is_asked_for_only_where_it_changes_something(
    changes: dict[str, Any], count: int
) -> None:
    assert len(driverplan.reboot_reasons(facts(DEBIAN, **changes))) == count


def test_a_hosts_facts_are_read_from_its_files(tmp_path: Path) -> None:
    """An eight-GPU machine with Hopper's switches, Secure Boot on, and one process on GPU 0."""
    assert driverfacts.facts(str(tmp_path))["loaded"] is None
    for n, (vendor, kind) in enumerate(
        [("0x10de", "0x030200"), ("0x10de", "0x068000"), ("0x8086", "0x068000")]
    ):
        device = tmp_path / f"sys/bus/pci/devices/0000:0{n}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    efi = tmp_path / driverfacts._SECURE_BOOT
    efi.parent.mkdir(parents=True)
    efi.write_bytes(b"\x06\0\0\0\x01")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.95.05\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/reboot-required").touch()
    (tmp_path / "run/reboot-required.pkgs").write_text("linux-image-6.1\nlibc6\nlibc6\n")
    for pid, name, target in (
        (41, "sglang::schedul", "/dev/nvidia0"),
        (42, "nvidia-persiste", "/dev/nvidiactl"),
        (43, "bash", "/dev/null"),
    ):
        process = tmp_path / f"proc/{pid}"
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(name + "\n")
        (process / "cgroup").write_text("0::/system.slice/sglang-kimi.service\n")
        (process / "fd" / "3").symlink_to(target)
    found = driverfacts.facts(str(tmp_path))
    assert (found["loaded"], found["nvswitch"], found["secure_boot"]) == ("580.95.05", True, True)
    assert found["reboot_required"] == ["libc6", "linux-image-6.1"]
    user = {"pid": 41, "name": "sglang::schedul", "unit": "sglang-kimi.service"}
    assert found["users"] == [user]
    assert not found["headers"] and not found["nouveau"]


def test_switches_of_nvlink_5_are_known_by_the_bridge_to_them(tmp_path: Path) -> None:
    """A ConnectX-7 is a network card, unless its Vital Product Data says what it manages."""
    card, bridge = (tmp_path / f"sys/bus/pci/devices/0000:{n}:00.0" for n in ("0a", "1b"))
    for device, vpd in ((card, b"\x82\x13\0NVIDIA ConnectX-7 HHHL\x78"), (bridge, b"")):
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x15b3\n")
        (device / "class").write_text("0x020700\n")
        (device / "vpd").write_bytes(vpd)
    assert not driverfacts.facts(str(tmp_path))["nvlink5"]
    (bridge / "vpd").write_bytes(b"\x82\x0e\0NVLink-Bridge \x90SMDL\x06SW_MNG\x78")
    assert driverfacts.facts(str(tmp_path))["nvlink5"]
    (bridge / "class").write_text("0x020000\n")  # Ethernet
    assert not driverfacts.facts(str(tmp_path))["nvlink5"]


class Mirror:
    """A package manager that holds these versions."""

    def __init__(self, held: dict[str, list[str]]) -> None:
        self.held = held

    def available(self, name: str) -> list[str]:
        return self.held.get(name, [])


def test_nvlsm_comes_in_whatever_version_the_repository_has() -> None:
    same = ("nvidia-open-580", "nvidia-fabricmanager", "nvidia-persistenced")
    held = {name: ["580.95.05-1"] for name in same} | {"nvlsm": ["2025.10.9-1", "2025.03.1-1"]}
    known = layout('VERSION_ID="24.04"\nID=ubuntu\n', "x86_64")
    parts = driverplan.missing(B200, wish())
    ask = (known, wish(), B200, parts, "http://m/")
    wanted, version = driverpackages._versions(Mirror(held), *ask)  # type: ignore[arg-type]
    assert ("nvlsm", "") in wanted and version == "580.95.05"
    del held["nvlsm"]
    with pytest.raises(Refused, match="nvlsm, which switches of NVLink 5 need"):
        driverpackages._versions(Mirror(held), *ask)  # type: ignore[arg-type]


def test_the_bridges_driver_is_loaded_now_and_at_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(nvidia_driver, "UMAD", str(tmp_path / "modules.conf"))
    monkeypatch.setattr(nvidia_driver, "run", lambda words: ran.append(list(words)))
    monkeypatch.setattr(nvidia_driver.os.path, "isdir", lambda path: path != "/sys/module/ib_umad")
    nvidia_driver._reach_bridges(Host(check=True))
    assert not ran and not (tmp_path / "modules.conf").exists()
    nvidia_driver._reach_bridges(Host(check=False))
    assert ran == [["modprobe", "ib_umad"]]
    assert "ib_umad\n" in (tmp_path / "modules.conf").read_text()


@pytest.mark.parametrize(
    ("text", "name", "packages"),
    [
        ('VERSION_ID="22.04"\nID=ubuntu\n', "ubuntu2204",
         {"headers": "linux-headers-6.8.0-1030-nvidia", "compiler": "g++"}),
        ('VERSION_ID="24.04"\nID=ubuntu\n', "ubuntu2404",
         {"toolkit": "cuda-toolkit-13-0", "initramfs": "update-initramfs -u"}),
        ('VERSION_ID="9.6"\nID="rhel"\n', "rhel9",
         {"headers": "kernel-devel-6.8.0-1030-nvidia", "compiler": "gcc-c++",
          "initramfs": "dracut --force", "stream": "580-open"}),
    ],
)  # fmt: skip
def test_names_of_packages_by_distribution(text: str, name: str, packages: dict[str, str]) -> None:
    known = layout(text, "x86_64")
    parts = {"branch": "580", "kernel": "6.8.0-1030-nvidia", "major": "13", "minor": "0"}
    found = {key: " ".join([value] if isinstance(value, str) else value).format(**parts)
             for key, value in known.items() if key in packages}  # fmt: skip
    assert found == packages and f"/{name}/" in known["url"]
    assert [one.format(**parts) for one in known["driver"]] == ["nvidia-open-580", "nvidia-open"]
    assert ("stream" in known) is (known["manager"] == "dnf")


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', "debian12"),
        ('PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n', "debian13"),
        ('NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n', "ubuntu2204"),
        ('NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n', "ubuntu2404"),
        ('NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos"\nVERSION_ID="9.6"\n', "rhel9"),
        ('NAME="Red Hat Enterprise Linux"\nID="rhel"\nVERSION_ID="9.4"\n', "rhel9"),
        ('NAME="AlmaLinux"\nID="almalinux"\nVERSION_ID="9.5"\n', "rhel9"),
        ('NAME="Oracle Linux Server"\nID="ol"\nVERSION_ID="9.5"\n', "rhel9"),
    ],
)
def test_distributions_that_are_known(text: str, repository: str) -> None:
    known = layout(text, "x86_64")
    assert known["url"].endswith(f"/{repository}/x86_64/")
    assert known["manager"] == ("dnf" if repository == "rhel9" else "apt")
    assert f"/{repository}/sbsa/" in layout(text, "aarch64")["url"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nID=debian\n', "bullseye"),
        ('PRETTY_NAME="Ubuntu 20.04.6 LTS"\nVERSION_ID="20.04"\nID=ubuntu\n', "Ubuntu 20.04.6"),
        ('PRETTY_NAME="Rocky Linux 8.10"\nVERSION_ID="8.10"\nID="rocky"\n', "Rocky Linux 8.10"),
        ('PRETTY_NAME="Debian GNU/Linux trixie/sid"\nID=debian\n', "trixie/sid"),
        ("", "a system without a name"),
    ],
)
def test_others_are_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(Refused, match=name) as refused:
        layout(text, "x86_64")
    assert all(known in str(refused.value) for known in SUPPORTED)
    with pytest.raises(Refused, match="riscv64"):
        layout('VERSION_ID="12"\nID=debian\n', "riscv64")


NEEDS = [
    {"service": "old", "engine": "0.5.9", "driver": "525.60.13"},
    {"service": "new", "engine": "0.5.23", "driver": "580.65.06"},
]


@pytest.mark.parametrize("asked", ["580", "590", "580.65.06", "580.105.08", "610.1"])
def test_a_driver_that_suits_every_engine(asked: str) -> None:
    driverplan.refuse_too_old(asked, NEEDS)


@pytest.mark.parametrize("asked", ["575", "575.57.08", "580.65.05"])
def test_a_driver_too_old_for_an_engine_is_refused_before_it_is_fetched(asked: str) -> None:
    words = f"^service new: SGLang 0.5.23 needs NVIDIA driver 580.65.06 or newer, {asked} is asked"
    with pytest.raises(Refused, match=words):
        driverplan.refuse_too_old(asked, NEEDS)
    driverplan.refuse_too_old(asked, NEEDS[:1])


def test_only_engines_on_gpus_ask_for_a_driver() -> None:
    gpus = {"service": "a", "version": "0.5.23", "device": "cuda", "gpus": None, "count": 8}
    found = least_drivers([gpus, gpus | {"device": "cpu"}, gpus | {"version": "9.9.9"}])
    assert found == [{"service": "a", "engine": "0.5.23", "driver": "580.65.06"}]
