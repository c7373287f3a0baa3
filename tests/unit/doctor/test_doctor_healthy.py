"""Hosts of many kinds in which nothing is wrong: doctor invents nothing about any of them.

Built from what such hosts show: names of cards, their MiB, PCI domains, the words for what a card
does not have, links, where NVSwitches stand, systemd's and the distribution's own words. Where the
corpus has an output of such a host, its text is taken from there (test_doctor_corpus).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.distro import layout
from opsctl.engine.compatibility import needs
from opsctl.onhost.doctor import examine
from opsctl.onhost.doctor.host import supported
from opsctl.onhost.hostfacts import parse_properties
from tests.unit.doctor import hosts
from tests.unit.doctor.test_doctor_corpus import RAW

UBUNTU_24 = (
    'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION="24.04.3 LTS '
    '(Noble Numbat)"\nID=ubuntu\nID_LIKE=debian\n'
)
DEBIAN_13 = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n'
RHEL = (
    'NAME="Red Hat Enterprise Linux"\nVERSION="9.6 (Plow)"\nID="rhel"\nID_LIKE="fedora"\n'
    'VERSION_ID="9.6"\nPRETTY_NAME="Red Hat Enterprise Linux 9.6 (Plow)"\n'
)
ALMA = 'NAME="AlmaLinux"\nID="almalinux"\nVERSION_ID="9.5"\nPRETTY_NAME="AlmaLinux 9.5"\n'
SYSTEMD = {
    hosts.OS["debian"]: "systemd 252 (252.38-1~deb12u1)\n",
    DEBIAN_13: "systemd 257 (257.7-1)\n",
    hosts.OS["ubuntu"]: "systemd 249 (249.11-0ubuntu3.16)\n",
    UBUNTU_24: "systemd 255 (255.4-1ubuntu8.10)\n",
    RHEL: "systemd 252 (252-51.el9_6.1)\n",
    ALMA: "systemd 252 (252-46.el9_5.3)\n",
    hosts.OS["rocky"]: "systemd 252 (252-32.el9_4.7)\n",
}


REFUSED = (
    'PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nID=debian\n',
    'PRETTY_NAME="Debian GNU/Linux forky/sid"\nID=debian\n',
    'PRETTY_NAME="Ubuntu 25.04"\nVERSION_ID="25.04"\nID=ubuntu\nID_LIKE=debian\n',
    'PRETTY_NAME="Linux Mint 22"\nVERSION_ID="22"\nID=linuxmint\nID_LIKE="ubuntu debian"\n',
    'PRETTY_NAME="Rocky Linux 8.10"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel fedora"\n',
    'PRETTY_NAME="AlmaLinux 10.0"\nVERSION_ID="10.0"\nID="almalinux"\nID_LIKE="rhel"\n',
    'PRETTY_NAME="Amazon Linux 2023"\nVERSION_ID="2023"\nID="amzn"\nID_LIKE="fedora"\n',
    'PRETTY_NAME="TencentOS 9"\nVERSION_ID="9.0"\nID="tencentos"\nID_LIKE="rhel fedora"\n',
    "",
)


@dataclass(frozen=True)
class Box:
    name: str
    count: int
    mib: int
    capability: str
    os: str
    driver: str = "580.105.08"
    link: str = "NV18"
    far: str = "NV18"
    engine: str = "0.5.9"
    used: int = 0
    switches: int = 0  # NVSwitches on the bus: Hopper's and older
    fabric: str = "N/A"
    domain: str = "00000000"
    mig: str = "Disabled"
    ecc: str = "Enabled"
    split: tuple[int, ...] = ()
    gpus: tuple[int, ...] | None = None
    topology: str = ""
    secure_boot: bool | None = False
    python: str = "3.11.2"
    units: dict[str, str] = field(default_factory=dict)


BOXES = {
    "8 H100, HGX": Box("NVIDIA H100 80GB HBM3", 8, 81559, "9.0", hosts.OS["debian"], switches=4,
                       fabric="Completed"),
    "4 H100 on PCIe": Box("NVIDIA H100 PCIe", 4, 81559, "9.0", hosts.OS["ubuntu"], "570.172.08",
                          link="NODE", far="SYS", python="3.10.12"),
    "8 H200, HGX, at work": Box("NVIDIA H200", 8, 143771, "9.0", UBUNTU_24, used=131072, switches=4,
                                fabric="Completed", python="3.12.3"),
    "8 H20, a driver of the same major": Box("NVIDIA H20", 8, 97871, "9.0", hosts.OS["ubuntu"],
                                             "550.127.08", switches=4, fabric="Completed"),
    "8 B200, switches off the bus": Box("NVIDIA B200", 8, 183359, "10.0", RHEL, engine="0.5.23",
                                        fabric="Completed", secure_boot=True, python="3.11.13"),
    "4 GB200, a tray of a rack": Box("NVIDIA GB200", 4, 189471, "10.0", UBUNTU_24, "590.48.01",
                                     engine="0.5.23", fabric="Completed", domain="00000008",
                                     python="3.12.3"),
    "8 RTX PRO 6000": Box(hosts.RTX, 8, 97887, "12.0", DEBIAN_13, link="PIX", far="SYS",
                          used=94292, python="3.13.5", secure_boot=None),
    "1 RTX PRO 6000": Box(hosts.RTX, 1, 97887, "12.0", hosts.OS["debian"], link="X", far="X"),
    "2 RTX 4090, no ECC and no MIG": Box("NVIDIA GeForce RTX 4090", 2, 24564, "8.9",
                                         UBUNTU_24, "575.64.03", link="PHB", far="SYS",
                                         mig="[N/A]", ecc="N/A", python="3.12.3"),
    "8 A100, two split and left alone": Box("NVIDIA A100-SXM4-40GB", 8, 40960, "8.0",
                                            hosts.OS["rocky"], link="NV12", far="NV12", switches=6,
                                            split=(6, 7), gpus=(0, 1, 2, 3), python="3.9.18"),
    "5 L40S, one on a node of its own": Box("NVIDIA L40S", 5, 46068, "8.9", ALMA, "570.172.08",
                                            gpus=(1, 2, 3, 4), topology=RAW["h31"], ecc="Enabled",
                                            python="3.9.21"),
    "3 RTX 6000 Ada": Box("NVIDIA RTX 6000 Ada Generation", 3, 49140, "8.9", DEBIAN_13, link="NODE",
                          far="SYS", mig="[N/A]", python="3.13.5"),
}  # fmt: skip


def address(box: Box, index: int) -> str:
    return f"{box.domain}:{0x11 + 0x10 * index:02X}:00.0"


def split(box: Box, index: int) -> str:
    return "Enabled" if index in box.split else box.mig


def table(box: Box) -> str:
    head = (
        f"| NVIDIA-SMI {box.driver}    Driver Version: {box.driver}    CUDA Version: 13.0     |\n"
    )
    rows = []
    for i in range(box.count):
        ecc = "On" if i in box.split else ("0" if box.ecc == "Enabled" else "N/A")
        mig = split(box, i).strip("[]")
        rows.append(
            f"|   {i}  {box.name[:24]:<24}  On | {address(box, i)} Off | {ecc:>20} |\n"
            f"| N/A   31C    P0    90W / 700W | {box.used:>7}MiB / {box.mib:>6}MiB |      0%"
            f"      Default |\n|{'':31}|{'':24}| {mig:>20} |\n+{'-' * 31}+\n"
        )
    return head + "".join(rows)


def queried(box: Box, whole: bool) -> str:
    rows = []
    for i in range(box.count):
        used, total = ("0", "40960") if i in box.split else (box.used, box.mib)
        row = f"{i}, {box.name}, GPU-{i:04d}, {total}, {used}, {split(box, i)}, {box.driver}"
        rows.append(f"{row}, {box.capability}, {address(box, i)}, 5, 16\n" if whole else f"{row}\n")
    return "".join(rows)


def details(box: Box) -> str:
    cards = []
    for i in range(box.count):
        status = "Success" if box.fabric == "Completed" else "N/A"
        text = hosts.CARD.format(
            bus=address(box, i), name=box.name, gen="1", pstate="P0", util="0",
            fabric=box.fabric, status=status,
        )  # fmt: skip
        mig = split(box, i).strip("[]")
        for name in ("current_mig", "pending_mig"):
            text = text.replace(f"<{name}>Disabled", f"<{name}>{mig}")
        for name in ("current_ecc", "pending_ecc"):
            text = text.replace(f"<{name}>Enabled", f"<{name}>{box.ecc}")
        if box.ecc == "N/A":
            start, end = text.index("<ecc_errors>"), text.index("</ecc_errors>")
            text = text[:start] + text[end + len("</ecc_errors>") :]
        cards.append(text)
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
        f"<nvidia_smi_log>\n  <driver_version>{box.driver}</driver_version>\n"
        f"  <cuda_version>13.0</cuda_version>\n{''.join(cards)}</nvidia_smi_log>\n"
    )


def links(box: Box, link: str, far: str) -> str:
    numbers = range(box.count)
    head = "\t" + "\t".join(f"GPU{i}" for i in numbers) + "\tCPU Affinity\tNUMA Affinity\t"
    rows = [head + "GPU NUMA ID\n"]
    half = max(1, (box.count + 1) // 2) if box.count > 2 else box.count
    for a in numbers:
        cells = [" X " if a == b else link if a // half == b // half else far for b in numbers]
        cores = "0-55,112-167" if a < half else "56-111,168-223"
        rows.append(f"GPU{a}\t" + "\t".join(cells) + f"\t{cores}\t{a // half}\t\tN/A\n")
    return "".join(rows)


def environment(version: str) -> dict[str, Any]:
    needed = needs(version)
    kernel, _, number = str(needed["kernel"]).partition("==")
    torch, cuda = needed["torch"], str(needed["cuda"])
    return hosts.environment(f"/opt/sglang/{version}") | {
        "packages": {"sglang": version, "torch": f"{torch}+cu{cuda.replace('.', '')}",
                     kernel: number},
        "requires": [f"torch=={torch}", f"{kernel}=={number}"],
        "torch": f"cuda: Optional[str] = '{cuda}'\n",
    }  # fmt: skip


def host(box: Box) -> dict[str, Any]:
    """The reference host with these cards, this system, and one service on them."""
    seen = hosts.reference()
    say = seen["commands"]
    seen["files"] |= {
        "/etc/os-release": box.os,
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
        f"{box.driver}  Release Build\n",
    }
    seen |= {"secure_boot": box.secure_boot, "python": box.python}
    seen["pci"] = [
        {"bus": address(box, i)[4:].lower(), "class": "0x030200", "driver": "nvidia"}
        for i in range(box.count)
    ]
    seen["pci"] += [{"bus": f"0000:0{i}:00.0", "class": "0x068000", "driver": "nvidia"}
                    for i in range(box.switches)]  # fmt: skip
    if box.switches:
        seen["units"]["nvidia-fabricmanager.service"] |= {
            "load": "loaded", "active": "active", "enabled": "enabled"
        }  # fmt: skip
        say["fabric-version"] = {
            "state": "ok", "rc": 0, "out": f"Fabric Manager version is : {box.driver}\n"
        }  # fmt: skip
    used = [i for i in range(box.count) if box.used]
    topology = box.topology or links(box, box.link, box.far)
    outs = {
        "smi": table(box),
        "smi-cards": queried(box, True),
        "smi-short": queried(box, False),
        "smi-details": details(box),
        "smi-processes": "".join(f"GPU-{i:04d}, {4001 + i}, {box.used - 12}\n" for i in used),
        "smi-topology": topology,
        "smi-p2p": links(box, "OK", "OK"),
        "module-version": f"{box.driver}\n",
        "nvcc": f"Cuda compilation tools, release {needs(box.engine)['cuda']}, V1\n",
        "systemd": SYSTEMD[box.os],
        "kernel": f"kernel: NVRM: loading NVIDIA UNIX Open Kernel Module  {box.driver}\n",
    }
    for name, text in outs.items():
        say[name]["out"] = text
    ranks = [f"TP{i}" for i in range(len(box.gpus or range(box.count)))]
    told = hosts.manifest(box.engine, ranks=ranks, gpus=list(box.gpus) if box.gpus else None)
    seen["services"][0] |= {"manifest": told, "engine": environment(box.engine)}
    seen["disks"][f"/opt/sglang/{box.engine}"] = hosts.disk()
    return seen


def amd(text: str, os: str, name: str, count: int) -> dict[str, Any]:
    seen = hosts.amd()
    seen["files"]["/etc/os-release"] = os
    seen["commands"]["systemd"]["out"] = SYSTEMD[os]
    seen["commands"]["rocm"]["out"] = text
    seen["amd"] = [{**card, "name": name} for card in seen["amd"][:count]]
    return seen


HOSTS = {name: host(box) for name, box in BOXES.items()} | {
    "8 MI300X": amd(RAW["h35"], hosts.OS["ubuntu"], "AMD Instinct MI300X", 8),
    "4 MI250X, the old table": amd(RAW["h36"], RHEL, "AMD Instinct MI250X", 4),
    "no card and no service": hosts.bare(),
}


@pytest.mark.parametrize("name", HOSTS)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    told = [one for one in examine.judge(HOSTS[name]) if one.status != "pass"]
    assert told == []


@pytest.mark.parametrize("name", BOXES)
def test_nor_by_the_look_before_a_start(name: str) -> None:
    seen = HOSTS[name]
    told = examine.before(seen, seen["services"][0]["manifest"])
    assert [one for one in told if one.status != "pass"] == []


def test_the_table_is_as_varied_as_it_says() -> None:
    assert len(HOSTS) >= 10
    assert len({box.os for box in BOXES.values()}) == 7
    assert {box.count for box in BOXES.values()} >= {1, 2, 3, 4, 5, 8}
    assert {box.capability for box in BOXES.values()} >= {"8.0", "8.9", "9.0", "10.0", "12.0"}


def test_a_card_in_error_is_found_on_each_of_them() -> None:
    for name, box in BOXES.items():
        seen = host(box)
        first = box.gpus[0] if box.gpus else 0
        row = f"{first}, {box.name},"
        for query in ("smi-cards", "smi-short"):
            told = seen["commands"][query]["out"]
            seen["commands"][query]["out"] = told.replace(row, f"{first}, ERR!,")
        faults = {one.fault for one in examine.judge(seen) if one.status == "fail"}
        assert faults == {"gpu-error", "gpu-too-few"}, name


@pytest.mark.parametrize("text", [*hosts.OS.values(), *SYSTEMD, *REFUSED])
def test_a_system_is_known_to_doctor_if_the_roles_know_it(text: str) -> None:
    try:
        known = bool(layout(text, "x86_64"))
    except Refused:
        known = False
    assert supported(parse_properties(text)) is known is (text not in REFUSED)
