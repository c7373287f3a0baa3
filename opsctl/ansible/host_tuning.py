"""The task of the role `host_tuning`."""

from __future__ import annotations

from typing import Any

from opsctl.ansible.action import Action, outcome


class ActionModule(Action):
    """Arguments: the settings of the program, each null or "" where nothing is asked for."""

    def act(self) -> dict[str, Any]:
        args = tuning_args(self.given("host_tuning"))
        return outcome(self.program("host_tuning", args | {"check": self.check}))


def tuning_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments as the program takes them, without `check`.

    An unset variable is an empty text: ansible-core 2.18 makes text of what a template gives.
    """
    settings = {key: None if value in ("", None) else value for key, value in given.items()}
    balancing = settings.get("numa_balancing")
    if isinstance(balancing, str):
        settings["numa_balancing"] = balancing.lower() in ("true", "yes", "1", "on")
    return {"settings": settings}
