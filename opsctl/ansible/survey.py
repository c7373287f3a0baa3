"""The one look at a host that tells which roles have anything to do or to refuse there.

A role costs a task and a round trip for each host; most deployments need none of them. The look
decides nothing else: a role that is named runs as if nobody had looked, and tells its own problems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.cuda import problems
from opsctl.ansible.engine import look_args
from opsctl.ansible.host import host_args


class ActionModule(Action):
    """Arguments: `host`, `cuda`, `engine`, `model`, each with what the role's task takes."""

    def act(self) -> dict[str, Any]:
        given = self.args
        python = given["engine"]["python"]
        said = self.program(
            "survey",
            {
                "host": host_args(given["host"]),
                "engine": [look_args(one, python) for one in given["engine"]["environments"]],
                "model": given["model"],
            },
        )
        return {"changed": False, "roles": roles(said, given["cuda"]["needs"])}


def roles(said: Mapping[str, Any], needs: list[dict[str, Any]]) -> list[str]:
    """Names of the roles that have something to do or to refuse (pure)."""
    found = {
        "host": [said["host"]],
        "cuda": [{"changed": False, "problems": problems(needs, said["cuda"])}],
        "engine": said["engine"],
        "model": [said["model"]],
    }
    return [
        role
        for role, results in found.items()
        if any(result["changed"] or result["problems"] for result in results)
    ]
