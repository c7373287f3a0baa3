"""What all action plugins share: errors become a task's failure, in an operator's words."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from opsctl.ansible import program, rolespec
from opsctl.ansible.connection import AnsibleHost
from opsctl.ansible.reading import read_as_far
from opsctl.errors import OpsctlError, SpecError
from opsctl.remote.start import ANSWER
from opsctl.remote.target import resolve


class Action(ActionBase):  # type: ignore[misc]
    """Subclasses write `act`. It returns a task result; an OpsctlError of it fails the task."""

    _supports_check_mode = True
    _supports_async = False
    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self.task_vars = task_vars
        try:
            return self.act()
        except OpsctlError as error:
            return {"failed": True, "msg": told(error)}
        except AnsibleConnectionFailure as error:  # Ansible counts the host as unreachable
            raise AnsibleConnectionFailure(f"{error}{self._way()}") from error
        except AnsibleError as error:
            if hint := _of_sudo(str(error)):
                return {"failed": True, "msg": f"{error}\n{hint}"}
            raise

    def act(self) -> dict[str, Any]:
        raise NotImplementedError

    def _way(self) -> str:
        """The jumps to the host: ssh with ControlPersist keeps what they said to itself."""
        name = str(self.task_vars["inventory_hostname"])
        said, _ = read_as_far([name], self.task_vars["hostvars"], self._loader)
        try:
            target = resolve(name, said[name]["vars"])
        except SpecError:
            return ""
        jumps = ", ".join(jump.login for jump in target.jumps)
        way = (
            f"the jump host {jumps}" if jumps else "a ProxyCommand" if target.proxy_command else ""
        )
        return f"\nThe way there is through {way}; try `{target.by_hand}`" if way else ""

    def once(self, said: str, host: str) -> str:
        """`said` of a task that runs once for all hosts, and of which another host than the one
        that Ansible counts it under is at fault."""
        here = str(self.task_vars["inventory_hostname"])
        if not host or host == here:
            return said
        return f"{said}\n(it is {host}'s; Ansible counts this task, for all hosts, as {here}'s)"

    @property
    def args(self) -> dict[str, Any]:
        return dict(self._task.args)

    def given(self, role: str) -> dict[str, Any]:
        """The arguments as the role's spec means them. Raises SpecError."""
        return rolespec.arguments(role, self.args, self._loader)

    @property
    def check(self) -> bool:
        return bool(self._task.check_mode)

    @property
    def host(self) -> AnsibleHost:
        """Raises OpsctlError where ansible_become_user is not root: ground floor and roles need it
        (a playbook's `become: true` means root unless that variable says otherwise)."""
        become = self._connection.become
        user = become.get_option("become_user") if become is not None else "root"
        if user not in (None, "", "root"):
            raise OpsctlError(
                f"ansible_become_user is {user}, and opsctl needs root on its hosts",
                host=str(self.task_vars["inventory_hostname"]),
                step="sudo",
                hint="take ansible_become_user out of the inventory for these hosts",
            )
        return AnsibleHost(self, self.task_vars)

    def program(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Run a program of opsctl.ansible.target on the host."""
        return program.run(self.host, name, args)


def _of_sudo(message: str) -> str:
    """What to do about a password that Ansible's sudo misses, or has tried in vain."""
    if message.startswith("Missing sudo password"):
        return f"{ANSWER}; or allow the login user NOPASSWD: ALL in sudoers"
    if message.startswith("Incorrect sudo password"):
        return "it was tried once; correct ansible_become_password in the vault, or give -K"
    return ""


def told(error: OpsctlError) -> str:
    """Message, the host's decisive lines, and what to do next."""
    lines = [f"{error.step}: {error.message}" if error.step else error.message]
    lines += [f"  {line}" for line in error.log]
    if error.hint:
        lines.append(error.hint)
    return "\n".join(lines)


def outcome(found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A host program's result as a task's result; its problems fail the task."""
    result: dict[str, Any] = {"changed": found["changed"], "diff": found["diff"], **more}
    if found["problems"]:
        result |= {"failed": True, "msg": "\n".join(found["problems"])}
    return result
