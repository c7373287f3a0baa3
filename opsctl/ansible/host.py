"""The task of the role `host`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible.action import Action, outcome


class ActionModule(Action):
    """Arguments: users, folders {path: mode}, nofile, journal_max_use."""

    def act(self) -> dict[str, Any]:
        number = int(self.args["nofile"])  # ansible-core 2.18: a template gives text
        return outcome(self.program("host", self.args | {"nofile": number, "check": self.check}))
