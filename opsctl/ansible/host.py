"""The task of the role `host`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible import bootstrap
from opsctl.ansible.action import Action, outcome
from opsctl.remote.onhost import NoPython


class ActionModule(Action):
    """Arguments: users, folders {path: mode}, nofile, journal_max_use, install_python."""

    def act(self) -> dict[str, Any]:
        args = host_args(self.args) | {"check": self.check}
        try:
            return _told(self.program("host", args))
        except NoPython as missing:
            allowed = may_install(self.args)
            bootstrap.may_install(self.host, missing, allowed=allowed, check=self.check)
        bootstrap.install(self.host)
        return _told(self.program("host", args)) | {"changed": True, "python": "installed"}


def _told(found: dict[str, Any]) -> dict[str, Any]:
    warnings = found.get("warnings")
    return outcome(found, **({"warnings": warnings} if warnings else {}))


def host_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments as the program takes them, without `check`."""
    told = {key: value for key, value in given.items() if key != "install_python"}
    return told | {"nofile": int(given["nofile"])}  # ansible-core 2.18: a template gives text


def may_install(given: dict[str, Any]) -> bool:
    return str(given.get("install_python", False)).lower() == "true"
