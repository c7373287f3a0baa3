"""Two lab hosts that serve the reference deployment on a driver from a real apt repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from opsctl.lab import inventory, rehearse
from opsctl.paths import share
from opsctl.rehearsal import wheel
from tests.lab.apt_repository import KERNEL, SMI, Repository

SERVICE = "sglang-kimi.service"
FIRST, SECOND, THIRD = "580.65.06", "580.95.05", "590.44.01"
# As YAML reads an unquoted yes.
FABRIC = {"nvidia_driver_fabric_manager": True, "nvidia_driver_reboot_timeout": 60}
REBOOT = {"nvidia_driver_allow_reboot": True}


class Fleet:
    """The hosts, their repository, their inventory."""

    def __init__(self, hosts: list[Any], folder: Path) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.folder = folder
        (folder / "served").mkdir()
        self.repository = Repository(folder / "served")
        self.repository.key("good")
        self.repository.fill("good")
        self.repository.index("good", "good")
        self.repository.serve()
        for name, host in self.hosts.items():
            rehearse.prepare(name)
            host.sh("mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.rehearsal")
            for path, content in {**KERNEL, "/usr/bin/nvidia-smi": SMI}.items():
                host.put(path, content.encode(), "755" if content.startswith("#!") else "644")
            host.sh("systemctl daemon-reload; systemctl enable --now -q lab-kernel.service")
        self._describe()

    def _describe(self) -> None:
        said = {name: host.login for name, host in self.hosts.items()}
        wheel.build("0.5.9", self.folder / "wheels")
        services = inventory.SERVICES.format(version="0.5.9", wheels=self.folder / "wheels")
        described = yaml.safe_load(services) | FABRIC
        described["sglang_services"]["kimi"]["host"] = "0.0.0.0"
        asked = {"url": self.repository.url("good"), "key": str(self.folder / "good.asc")}
        described |= {"nvidia_driver_repository": asked, "nvidia_driver_branch": "580"}
        (self.folder / "inventory" / "group_vars").mkdir(parents=True)
        book = {"kimi": {"hosts": said}}
        (self.folder / "inventory" / "hosts.yml").write_text(yaml.safe_dump(book))
        file = self.folder / "inventory" / "group_vars" / "kimi.yml"
        file.write_text(yaml.safe_dump(described))

    def command(self, book: str, *more: str, **variables: Any) -> list[str]:
        tool = str(Path(sys.executable).with_name("ansible-playbook"))
        where = ["-i", str(self.folder / "inventory"), str(share() / "playbooks" / book)]
        return [tool, *where, "-e", json.dumps(variables), *more]

    def play(self, book: str, *more: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(book, *more, **variables),
            cwd=share() / "playbooks",
            env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def roll(self, version: str, *more: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """upgrade_driver.yml to a version; what it said, unwrapped."""
        branch = version.partition(".")[0]
        wish = {"nvidia_driver_version": version, "nvidia_driver_branch": branch}
        return self.play("upgrade_driver.yml", *more, **{**wish, **REBOOT, **variables})

    def ask(self, command: str) -> dict[str, str]:
        return {n: h.sh(command, check=False).stdout.strip() for n, h in self.hosts.items()}

    def drivers(self) -> dict[str, str]:
        return self.ask("cat /sys/module/nvidia/version")

    def boots(self) -> dict[str, str]:
        return self.ask("cat /proc/sys/kernel/random/boot_id")

    def invocations(self) -> dict[str, str]:
        return self.ask(f"systemctl show -P InvocationID {SERVICE}")

    def states(self) -> dict[str, str]:
        return self.ask(f"systemctl is-active {SERVICE}")


def said(done: subprocess.CompletedProcess[str]) -> str:
    """All words, with Ansible's escapes and indentation taken out of its messages."""
    return " ".join((done.stdout + done.stderr).replace("\\n", " ").split())


class Stream:
    """Asks a host's /health twenty times a second; when it did not answer, in seconds."""

    def __init__(self, host: Any) -> None:
        self._url = f"http://{host.address}:30000/health"
        self._over = threading.Event()
        self.gaps: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        last, down = time.monotonic(), False
        while not self._over.wait(0.05):
            try:
                with urllib.request.urlopen(self._url, timeout=1) as answer:
                    ok = answer.status == 200
            except OSError:
                ok = False
            now = time.monotonic()
            if ok and down:
                self.gaps.append((last, now))
            if ok:
                last = now
            down = not ok
        if down:
            self.gaps.append((last, float("inf")))

    @property
    def longest(self) -> float:
        return max((end - begin for begin, end in self.gaps), default=0.0)


@contextmanager
def streams(fleet: Fleet) -> Iterator[dict[str, Stream]]:
    """One a host, while the block runs."""
    found = {name: Stream(host) for name, host in fleet.hosts.items()}
    for stream in found.values():
        stream._thread.start()
    yield found
    for stream in found.values():
        stream._over.set()
        stream._thread.join(5)


def apart(one: Stream, other: Stream) -> bool:
    """Whether there was always one of the two that answered."""
    return all(b1 >= e2 or b2 >= e1 for b1, e1 in one.gaps for b2, e2 in other.gaps)
