"""What all action plugins share: errors become a task's failure, in an operator's words."""

from __future__ import annotations

from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase

from opsctl.ansible import program
from opsctl.ansible.connection import AnsibleHost
from opsctl.errors import NothingSelected, OpsctlError


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

    def act(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def args(self) -> dict[str, Any]:
        return dict(self._task.args)

    @property
    def check(self) -> bool:
        return bool(self._task.check_mode)

    @property
    def host(self) -> AnsibleHost:
        return AnsibleHost(self, self.task_vars)

    def program(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Run a program of opsctl.ansible.target on the host."""
        return program.run(self.host, name, args)


def refuse_empty_limit() -> None:
    """Ansible takes `--limit ""` for all hosts: `--limit "$HOST"` without a HOST would change the
    whole fleet. Raises NothingSelected."""
    limit = context.CLIARGS.get("subset")
    if limit is not None and not str(limit).strip(" ,:"):
        raise NothingSelected(
            f"--limit {limit!r} names no host", hint="leave --limit out for all hosts"
        )


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
