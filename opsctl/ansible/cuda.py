"""The task of the role `cuda`: toolkits; and what nvidia-smi says against what the engine needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible.action import Action, outcome
from opsctl.ansible.compatibility import judge
from opsctl.ansible.nvidia_driver import with_key


class ActionModule(Action):
    """Arguments: needs (see opsctl.ansible.compatibility.judge), driver_branch (that the role
    before is to install), and of toolkits: toolkits, default, repository, allow_repair."""

    def act(self) -> dict[str, Any]:
        given = self.given("cuda")
        found = self.program("cuda", toolkit_args(given) | {"check": self.check})
        coming = self.check and given.get("driver_branch") and not found["driver"]
        wrong = [] if coming else problems(given["needs"], found)
        toolkit = found["toolkit"]
        told = outcome(
            toolkit | {"problems": [*toolkit["problems"], *wrong]},
            driver=found["driver"],
            cuda=found["cuda"],
            gpus=[gpu.get("name") for gpu in found["gpus"]],
        )
        if coming:
            told["warnings"] = ["GPUs are judged when the driver is installed: not in check mode"]
        return told


def toolkit_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments as the program takes them, without `check`."""
    keys = ("toolkits", "default", "repository", "allow_repair")
    if not given.get("toolkits"):
        return {}
    plain = {key: given[key] for key in keys}
    return plain | {"repository": with_key(plain["repository"], "cuda_repository")}


def problems(needs: list[dict[str, Any]], found: Mapping[str, Any]) -> list[str]:
    """All that stands in the way of any service; `found`: what the program `cuda` says."""
    return [text for need in needs for text in judge(need, found["driver"], found["gpus"])]
