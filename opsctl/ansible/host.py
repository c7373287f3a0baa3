"""The task of the role `host`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible.action import Action, outcome


class ActionModule(Action):
    """Arguments: users, folders {path: mode}, nofile, journal_max_use."""

    def act(self) -> dict[str, Any]:
        return outcome(self.program("host", self.args | {"check": self.check}))
