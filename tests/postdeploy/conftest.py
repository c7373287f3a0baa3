"""Post-deploy checks: `pytest tests/postdeploy --hosts=ansible://all --ansible-inventory=FILE`.

They show what the program finds that stands on the host itself; nothing is judged twice. Which
services there are is asked of the host, not of a description. A host that cannot be reached is an
error of its tests, never a result.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import testinfra

PROGRAM = "/var/lib/opsctl/onhost.pyz"
NO_HOSTS = "name hosts: --hosts=ansible://all --ansible-inventory=FILE"
UNREACHABLE = 255  # what ssh ends with when the connection itself failed


@dataclass
class Machine:
    """A host, the services that were found on it, and why it could not be asked, if so."""

    host: Any
    name: str
    services: list[str] = field(default_factory=list)
    failure: str = ""

    @cached_property
    def _sudo(self) -> str:
        """Raises RuntimeError where sudo asks for a password: testinfra gives none to its own
        connections."""
        if self.host.run("id -u").stdout.strip() == "0":
            return ""
        tried = self.host.run("sudo -n true")
        if tried.rc != 0:
            raise RuntimeError(
                f"{self.name}: {tried.stderr.strip()}; with --force-ansible the password of the "
                "inventory is used"
            )
        return "sudo -n "

    def run(self, *words: str, ok: tuple[int, ...] = (0,)) -> str:
        """Stdout of a command as root. Raises RuntimeError: a fault of the way, not a result."""
        done = self.host.run(self._sudo + shlex.join(words))
        if done.rc == UNREACHABLE or done.rc not in ok:
            raise RuntimeError(
                f"{self.name}: {shlex.join(words)} ended with {done.rc}: {done.stderr.strip()}"
            )
        return str(done.stdout)

    def onhost(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run("python3", PROGRAM, *words, ok=(0, 1)))
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {' '.join(words)}: {answer['error']['message']}")
        return answer


@dataclass
class Deployed:
    """One service on one host, asked once for all tests."""

    machine: Machine
    service: str

    @cached_property
    def state(self) -> Mapping[str, Any]:
        """The service's part of `collect`."""
        found = self.machine.onhost("collect", "--service", self.service)["services"]
        return next(s for s in found if s["service"] == self.service)

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        found = self.state.get("manifest")
        assert found, f"{self.service} does not run a release of opsctl"
        return dict(found)

    @cached_property
    def checks(self) -> dict[str, Mapping[str, Any]]:
        """What every gate says now, by its name. Sends real requests to the engine."""
        answer = self.machine.onhost("verify", self.service)
        return {check["id"]: check for check in answer["checks"]}

    @property
    def releases(self) -> str:
        return f"/etc/opsctl/{self.service}/releases"


def find(host: Any) -> Machine:
    machine = Machine(host, host.backend.get_pytest_id())
    try:
        listed = machine.run("find", "/etc/opsctl", "-mindepth", "2", "-maxdepth", "2", "-name",
                             "releases", "-type", "d", ok=(0, 1))  # fmt: skip
        machine.services = sorted(line.split("/")[3] for line in listed.splitlines())
    except Exception as error:  # whatever a connection backend raises: it becomes the tests' error
        machine.failure = f"{type(error).__name__}: {error}"
    return machine


def machines(config: pytest.Config) -> list[Machine]:
    found: list[Machine] | None = getattr(config, "_opsctl_machines", None)
    if found is not None:
        return found
    option = config.option
    if not option.hosts:
        raise pytest.UsageError(NO_HOSTS)
    # testinfra runs ansible-inventory: the one of this environment is meant, activated or not.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    hosts = testinfra.get_hosts(
        option.hosts.split(","),
        connection=option.connection,
        ssh_config=option.ssh_config,
        ssh_identity_file=option.ssh_identity_file,
        sudo=option.sudo,
        sudo_user=option.sudo_user,
        ansible_inventory=option.ansible_inventory,
        force_ansible=option.force_ansible,
    )
    if not hosts:
        raise pytest.UsageError(f"--hosts={option.hosts} names no host")
    found = [find(host) for host in hosts]
    config._opsctl_machines = found  # type: ignore[attr-defined]
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Called if this folder is what was asked for: then the message comes without a traceback."""
    if not config.option.hosts:
        raise pytest.UsageError(NO_HOSTS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        found = machines(metafunc.config)
        names = [machine.name for machine in found]
        metafunc.parametrize("machine", found, ids=names, indirect=True, scope="session")
    if "deployed" in metafunc.fixturenames:
        pairs = [
            Deployed(machine, service)
            for machine in machines(metafunc.config)
            for service in machine.services
        ]
        names = [f"{d.machine.name}-{d.service}" for d in pairs]
        metafunc.parametrize("deployed", pairs, ids=names, scope="session")


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    if found.failure:
        raise RuntimeError(f"{found.name} could not be asked: {found.failure}")
    return found
