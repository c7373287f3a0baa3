"""The one look at a host that tells which roles have anything to do or to refuse there.

A role costs a task and a round trip for each host; most deployments need none of them. The look
decides nothing else: a role that is named runs as if nobody had looked, and tells its own problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible import bootstrap
from opsctl.ansible.action import Action
from opsctl.ansible.cuda import problems, toolkit_args
from opsctl.ansible.engine import look_args
from opsctl.ansible.host import host_args
from opsctl.ansible.host_tuning import tuning_args
from opsctl.ansible.model import warned
from opsctl.ansible.nvidia_driver import driver_args
from opsctl.ansible.rolespec import arguments
from opsctl.remote.onhost import NoPython


class ActionModule(Action):
    """Arguments: one a role (`host`, `nvidia_driver`, `cuda`, `host_tuning`, `engine`, `model`),
    each with what the role's task takes."""

    def act(self) -> dict[str, Any]:
        given = {role: arguments(role, args, self._loader) for role, args in self.args.items()}
        python = given["engine"]["python"]
        asked = {
            "host": host_args(given["host"]),
            "nvidia_driver": driver_args(given["nvidia_driver"]),
            "cuda": toolkit_args(given["cuda"]),
            "host_tuning": tuning_args(given["host_tuning"]),
            "engine": [look_args(one, python) for one in given["engine"]["environments"]],
            "model": given["model"],
        }
        try:
            said = self.program("survey", asked)
        except NoPython as missing:
            # The role `host` puts it there; what the others would have to do, nobody can tell yet.
            allowed = given["host"]["install_python"]
            bootstrap.may_install(self.host, missing, allowed=allowed, check=self.check)
            return {"changed": False, "roles": list(asked)}
        # Of a damaged model that is served all the same: no role has anything to do about it.
        told = warned(said["model"], str(self.task_vars["inventory_hostname"]))
        return {"changed": False, "roles": roles(said, given["cuda"]["needs"]), **told}


def roles(said: Mapping[str, Any], needs: list[dict[str, Any]]) -> list[str]:
    """Names of the roles that have something to do or to refuse (pure)."""
    wrong = problems(needs, said["cuda"])
    found = {
        "host": [said["host"]],
        "nvidia_driver": [said["nvidia_driver"] | {"changed": _to_do(said["nvidia_driver"])}],
        "cuda": [said["cuda"]["toolkit"], {"changed": False, "problems": wrong}],
        "host_tuning": [said["host_tuning"]],
        "engine": said["engine"],
        "model": [said["model"]],
    }
    return [
        role
        for role, results in found.items()
        if any(result["changed"] or result["problems"] for result in results)
    ]


def _to_do(driver: Mapping[str, Any]) -> bool:
    """A reboot that is outstanding is something to do, or to refuse."""
    return bool(driver["changed"] or driver["reboot"])
