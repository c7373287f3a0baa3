"""Fixtures that every kind of test may use: real hosts from the lab.

A lab of its own may be named by LAB_NAME, LAB_DIR (see opsctl/lab/lab.sh). Where hosts cannot be
booted, tests that need them FAIL with the reason; they are never skipped in silence.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAB_SH = Path(__file__).resolve().parent.parent / "opsctl" / "lab" / "lab.sh"
_booted: list[int] = []  # how many hosts this run has booted, each time


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C reaches the commands under test, however the run was started.

    A shell starts a job in the background with SIGINT ignored, and every process below inherits
    that: what is to end at Ctrl-C would then never end.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _lab(*args: str, timeout: float = 300, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", str(LAB_SH), *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode != 0:
        pytest.fail(f"lab.sh {' '.join(args)} failed ({done.returncode}): {done.stderr[-2000:]}")
    return done


@dataclass(frozen=True)
class LabHost:
    name: str

    @property
    def address(self) -> str:
        return f"{os.environ.get('LAB_NET', '10.77.0')}.{10 + int(self.name[1:])}"

    @property
    def login(self) -> dict[str, str]:
        """The inventory's variables by which Ansible and opsctl reach it, as root."""
        config = ssh_config()
        return {
            "ansible_host": self.address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(Path(config).parent / "id_ed25519"),
            "ansible_ssh_common_args": f"-F {config}",
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def sh(
        self, command: str, *, check: bool = True, timeout: float = 120, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the host as root, over SSH."""
        done = subprocess.run(
            ["ssh", "-F", ssh_config(), self.name, "--", command],
            input=input if input is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{self.name}: {command}: {done.returncode}: {done.stderr}")
        return done

    def put(self, path: str, content: bytes, mode: str = "644") -> None:
        subprocess.run(
            [
                "ssh", "-F", ssh_config(), self.name, "--",
                f"mkdir -p $(dirname {path}) && cat > {path} && chmod {mode} {path}",
            ],
            input=content,
            check=True,
            timeout=120,
        )  # fmt: skip

    def lab(self, verb: str, *args: str) -> None:
        """A drill: kill, start, stop, cut, mend, freeze, thaw."""
        _lab(verb, self.name, *args)


def slay(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to a process and all below it: Ansible's workers have sessions of their own, which no
    signal to its group reaches."""
    for pid in [process.pid, *_below(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _below(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found += [child, *_below(child)]
    return found


def ssh_config() -> str:
    return _lab("ssh-config").stdout.strip()


def boot(count: int) -> list[LabHost]:
    """h1 … hCOUNT with fresh disks, whatever ran before."""
    _booted.append(count)
    names = [f"h{i}" for i in range(1, count + 1)]
    # Ansible's SSH masters of hosts that were here before would answer for the new ones.
    masters = Path(ssh_config()).parent.parent / "cp"
    os.environ["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(masters)
    shutil.rmtree(masters, ignore_errors=True)
    for name in names:
        _lab("kill", name, check=False)
    _lab("up", str(count), timeout=900)
    return [LabHost(n) for n in names]


def pytest_sessionfinish() -> None:
    """No hosts stay behind: the demo, and the next run, find the machine as these tests did. Those
    of another run that is at work are left alone."""
    if _booted:
        _lab("down", check=False)


@pytest.fixture(scope="module")
def lab_hosts() -> Iterator[list[LabHost]]:
    """Two fresh hosts for the tests of one module."""
    yield boot(2)


@pytest.fixture(scope="module")
def lab_host(lab_hosts: list[LabHost]) -> LabHost:
    return lab_hosts[0]


@pytest.fixture(scope="module")
def boot_one() -> Iterator[LabHost]:
    """One fresh host for the tests of one module."""
    yield boot(1)[0]
