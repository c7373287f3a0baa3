"""The task of the role `host`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible.action import Action, outcome


class ActionModule(Action):
    """Arguments: users, folders {path: mode}, nofile, journal_max_use."""

    def act(self) -> dict[str, Any]:
        return outcome(self.program("host", host_args(self.args) | {"check": self.check}))


def host_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments as the program takes them, without `check`."""
    return given | {"nofile": int(given["nofile"])}  # ansible-core 2.18: a template gives text
