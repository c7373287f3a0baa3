"""Calls lab.sh, and says plainly why hosts cannot be booted here."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from opsctl.errors import OpsctlError

SCRIPT = Path(__file__).resolve().parent / "lab.sh"
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "nft": "nftables",
}


def folder() -> Path:
    """Where the lab lives; the same default as lab.sh."""
    return Path(os.environ.get("LAB_DIR") or "/var/tmp/opsctl-lab")


def network() -> str:
    return os.environ.get("LAB_NET") or "10.77.0"


def check(system: str, root: bool, missing: Sequence[str], apt: bool) -> None:
    """Raises OpsctlError if this machine cannot boot hosts, with what to do about it."""
    if system != "Linux":
        raise OpsctlError(
            f"a lab needs Linux, this is {system}", hint="run it on a Linux machine or in a VM"
        )
    if not root:
        raise OpsctlError(
            "a lab needs root: it mounts and makes networks", hint="sudo opsctl lab …"
        )
    if missing and not apt:
        packages = " ".join(TOOLS[t] for t in missing)
        raise OpsctlError(
            f"a lab needs {', '.join(missing)}, and there is no apt-get to install them with",
            hint=f"install the packages {packages}",
        )


def run(*args: str, timeout: float = 900) -> str:
    """Stdout of a verb; its talk goes to our stderr. Raises OpsctlError with its last words."""
    missing = [t for t in TOOLS if shutil.which(t) is None]
    check(platform.system(), os.geteuid() == 0, missing, shutil.which("apt-get") is not None)
    try:
        done = subprocess.run(
            ["bash", str(SCRIPT), *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise OpsctlError(f"lab.sh {' '.join(args)} did not end within {timeout:.0f} s") from None
    sys.stderr.write(done.stderr)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-20:]
        raise OpsctlError(
            f"lab.sh {' '.join(args)} ended with {done.returncode}"
            + (f": {last[-1].removeprefix('lab: ')}" if last else ""),
            log=last,
        )
    return done.stdout
