"""The task of the role `cuda`: what nvidia-smi says against what the engine needs."""

from __future__ import annotations

from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.compatibility import judge
from opsctl.remote import onhost


class ActionModule(Action):
    """Argument: needs (see opsctl.ansible.compatibility.judge). Changes nothing."""

    def act(self) -> dict[str, Any]:
        found = onhost.call(self.host, "collect")
        driver, gpus = found.get("driver"), found.get("gpus") or []
        problems = [p for need in self.args["needs"] for p in judge(need, driver, gpus)]
        result = {
            "changed": False,
            "driver": driver,
            "cuda": found.get("cuda"),
            "gpus": [gpu.get("name") for gpu in gpus],
        }
        return result | ({"failed": True, "msg": "\n".join(problems)} if problems else {})
