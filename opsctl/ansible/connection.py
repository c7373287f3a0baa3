"""Ansible's own connection, spoken to as opsctl speaks to a host.

Preparing and staging use it for everything: whatever login, jump or become an operator has set up
for Ansible works unchanged, and Ansible's multiplexed SSH master means one handshake a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from opsctl.errors import OpsctlError
from opsctl.remote.host import Answer
from opsctl.remote.start import Start, sudo_refuses


class AnsibleHost:
    """`run` of the Host protocol. Ansible's connection cannot stream, so `stream` refuses."""

    def __init__(self, action: Any, task_vars: Mapping[str, Any]) -> None:
        self.name = str(task_vars["inventory_hostname"])
        self.target = SimpleNamespace(python=python_of(task_vars))
        self._action = action

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        sudo: bool = True,
    ) -> Answer:
        """Run to the end. An unreachable host is Ansible's own exception: it then counts it so.

        `timeout` is not used: Ansible's connection has keepalives and a time limit of its own.
        Without input Ansible would take a terminal, which mixes the streams and changes line ends.
        """
        start = Start(self.name, self._user)
        said = self._action._low_level_execute_command(
            start.command(argv), sudoable=sudo, in_data=stdin or b"\n"
        )
        out, err = start.out(said["stdout"].encode()), start.err(said["stderr"].encode())
        if start.begun:
            return Answer(int(said["rc"]), out.decode(), err.decode())
        raise self._refused(start, said)

    @property
    def _user(self) -> str:
        return str(self._action._get_remote_user() or "the login user")

    def _refused(self, start: Start, said: Mapping[str, Any]) -> OpsctlError:
        """sudo speaks on stderr; a login shell that runs nothing rarely does."""
        become = self._action._connection.become
        if become is not None and ("sudo" in said["stderr"] or self._user in said["stderr"]):
            given = bool(become.get_option("become_pass"))
            return sudo_refuses(
                self.name, self._user, "sudo", int(said["rc"]), said["stderr"], given
            )
        found = start.refusal(int(said["rc"]))
        assert found is not None
        return found

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        raise NotImplementedError("Ansible's connection gives no lines while a command runs")

    def close(self) -> None:
        """Ansible closes its connection."""


def python_of(task_vars: Mapping[str, Any]) -> str:
    """The host's Python: what the inventory names, else python3 of its PATH."""
    named = str(task_vars.get("ansible_python_interpreter") or "")
    return "python3" if not named or named.startswith("auto") or "{{" in named else named
