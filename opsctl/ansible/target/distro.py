"""Which distribution a host runs, and how NVIDIA's repository is laid out for it.

Package names as in NVIDIA's driver installation guide (r580, r590) and its CUDA installation
guide. Where names differ by release of the driver, the first that the repository holds is taken.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List

from opsctl.ansible.target.converge import Refused

VENDOR = "https://developer.download.nvidia.com/compute/cuda/repos/{repository}/{machine}/"

# `persistence` may be part of the driver's own packages (Ubuntu before r590): it is asked for only
# where the repository has it by itself.
_DEB: Dict[str, Any] = {
    "manager": "apt",
    "driver": ["nvidia-open-{branch}", "nvidia-open"],
    "persistence": ["nvidia-persistenced"],
    "fabric": ["nvidia-fabricmanager", "nvidia-fabricmanager-{branch}"],
    "headers": "linux-headers-{kernel}",
    "toolkit": "cuda-toolkit-{major}-{minor}",
    "ninja": "ninja-build",
    "compiler": "g++",
    "initramfs": ["update-initramfs", "-u"],
}
_RPM: Dict[str, Any] = {
    **_DEB,
    "manager": "dnf",
    "driver": ["nvidia-open-{branch}", "nvidia-open"],
    "headers": "kernel-devel-{kernel}",
    "compiler": "gcc-c++",
    "initramfs": ["dracut", "--force"],
    "stream": "{branch}-open",  # of the module nvidia-driver; none is enabled at first
}
SUPPORTED: Dict[str, Dict[str, Any]] = {
    "debian 12": {**_DEB, "repository": "debian12"},
    "debian 13": {**_DEB, "repository": "debian13"},
    "ubuntu 22.04": {**_DEB, "repository": "ubuntu2204"},
    "ubuntu 24.04": {**_DEB, "repository": "ubuntu2404"},
    "rhel 9": {**_RPM, "repository": "rhel9"},
}
_RHEL_FAMILY = ("rhel", "rocky", "almalinux", "centos", "ol")
_MACHINES = {"x86_64": "x86_64", "aarch64": "sbsa"}


def os_release(text: str) -> Dict[str, str]:
    """The fields of /etc/os-release."""
    found = re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)
    return {key: value.strip().strip("\"'") for key, value in found}


def layout(text: str, machine: str) -> Dict[str, Any]:
    """What is known of a distribution, from its /etc/os-release. Raises Refused by its name."""
    fields = os_release(text)
    name, version = fields.get("ID", ""), fields.get("VERSION_ID", "")
    if name in _RHEL_FAMILY:
        name, version = "rhel", version.partition(".")[0]
    known = SUPPORTED.get(f"{name} {version}")
    told = fields.get("PRETTY_NAME") or f"{name} {version}".strip() or "a system without a name"
    if known is None:
        raise Refused(
            f"the host runs {told}: drivers and toolkits are installed on {', '.join(SUPPORTED)} "
            "(and the like of RHEL 9); install them by hand and leave the role's variables unset"
        )
    if machine not in _MACHINES:
        raise Refused(f"the host is a {machine}: drivers are installed on x86_64 and aarch64")
    url = VENDOR.format(repository=known["repository"], machine=_MACHINES[machine])
    return {**known, "name": told, "url": url}


def names(candidates: List[str], **parts: str) -> List[str]:
    return [one.format(**parts) for one in candidates]
