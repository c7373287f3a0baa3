"""The task of the role `service`: the releases of a host's services are put there, none is started.

It takes no secret as an argument and returns none, so nothing needs `no_log`: it reads the
description itself, and secrets travel through the connection's stdin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.described import described
from opsctl.errors import Refused
from opsctl.rollout.run import new_run, whoami
from opsctl.rollout.staging import Staged, refuse, stage

BULKY = ("processes", "start", "manifest")  # no plan without changes looks at these
REASON = "staged by the role service"  # in the history, if nothing restarts


class ActionModule(Action):
    """Argument: override, the reason to stage what the forecast says does not fit."""

    def act(self) -> dict[str, Any]:
        name = str(self.task_vars["inventory_hostname"])
        services = described([name], self.task_vars, self._loader)[name].services
        override = str(self.args.get("override") or "")
        if override and not override.strip():
            raise Refused("service_override is blank: it takes a reason in words")
        by = {"run": new_run(), "owner": whoami(), "reason": REASON}
        staged = stage(self.host, services, check=self.check, override=override, by=by)
        refuse(staged, problems=not self.check or prepared(self.task_vars))
        return result(staged)


def prepared(task_vars: Mapping[str, Any]) -> bool:
    """Whether no role has anything to do on the host. With --check roles change nothing: what they
    would put right is told, and is no reason to fail; all else is one."""
    surveyed = task_vars.get("opsctl_surveyed") or {}
    return "roles" in surveyed and not surveyed["roles"]


def result(staged: list[Staged]) -> dict[str, Any]:
    """The task's result; `services` is what the rollout needs to know."""
    found: dict[str, Any] = {
        "changed": any(one.changed for one in staged),
        "diff": [{"prepared": one.diff} for one in staged if one.diff],
        "services": {
            one.service: {
                "digest": one.digest,
                "changed": one.changed,
                "verdict": one.verdict,
                "manifest": dict(one.release.manifest),
                "takeover": one.takeover.as_json() if one.takeover else None,
                "before": {k: v for k, v in one.state.items() if k not in BULKY},
            }
            for one in staged
        },
    }
    warnings = [f"{one.service} on {one.host}: {one.warning}" for one in staged if one.warning]
    warnings += [f"{o.service} on {o.host}: {text}" for o in staged for text in o.problems]
    return found | ({"warnings": warnings} if warnings else {})
