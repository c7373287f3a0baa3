"""The task of the role `host`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible import bootstrap
from opsctl.ansible.action import Action, outcome
from opsctl.remote.onhost import NoPython


class ActionModule(Action):
    """Arguments: users, folders {path: mode}, nofile, journal_max_use, install_python."""

    def act(self) -> dict[str, Any]:
        given = self.given("host")
        args = host_args(given) | {"check": self.check}
        try:
            return _told(self.program("host", args))
        except NoPython as missing:
            allowed = given["install_python"]
            bootstrap.may_install(self.host, missing, allowed=allowed, check=self.check)
        bootstrap.install(self.host)
        return _told(self.program("host", args)) | {"changed": True, "python": "installed"}


def _told(found: dict[str, Any]) -> dict[str, Any]:
    warnings = found.get("warnings")
    return outcome(found, **({"warnings": warnings} if warnings else {}))


def host_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments as the program takes them, without `check`."""
    return {key: value for key, value in given.items() if key != "install_python"}
