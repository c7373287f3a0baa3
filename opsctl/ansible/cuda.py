"""The task of the role `cuda`: what nvidia-smi says against what the engine needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.compatibility import judge


class ActionModule(Action):
    """Argument: needs (see opsctl.ansible.compatibility.judge). Changes nothing."""

    def act(self) -> dict[str, Any]:
        found = self.program("cuda", {})
        wrong = problems(self.args["needs"], found)
        result = {
            "changed": False,
            "driver": found["driver"],
            "cuda": found["cuda"],
            "gpus": [gpu.get("name") for gpu in found["gpus"]],
        }
        return result | ({"failed": True, "msg": "\n".join(wrong)} if wrong else {})


def problems(needs: list[dict[str, Any]], found: Mapping[str, Any]) -> list[str]:
    """All that stands in the way of any service; `found`: what the program `cuda` says."""
    return [text for need in needs for text in judge(need, found["driver"], found["gpus"])]
