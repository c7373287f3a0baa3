"""The task of verify.yml: every gate but the soak on what is running now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.described import described
from opsctl.errors import NothingSelected, OpsctlError
from opsctl.forecast.advised import advice
from opsctl.remote import onhost
from opsctl.remote.host import Host
from opsctl.rollout.staging import facts_of
from opsctl.views import advisories
from opsctl.views import checks as view


class ActionModule(Action):
    """Changes nothing, so it runs in check mode too. Only a failed gate fails the task."""

    def act(self) -> dict[str, Any]:
        name = str(self.task_vars["inventory_hostname"])
        services = described([name], self.task_vars, self._loader)[name].services
        if not services:
            return {"changed": False, "skipped": True, "msg": f"no service is described for {name}"}
        found = {}
        for service in services:
            answer = onhost.call(self.host, "verify", service, timeout=900)
            found[service] = answer.get("checks") or []
            for check in found[service]:
                self._display.display(f"{name} {service}: {view.line(check)}")
            for text in known(self.host, service):
                self._display.display(f"{name} {service}: {text}")
        return result(name, found)


def result(host: str, found: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, Any]:
    """No check at all would be no verdict: that is an error, not a pass."""
    for service, checks in found.items():
        if not checks:
            raise NothingSelected(f"{service} on {host}: the host ran no check")
    failed = [
        f"{service} on {host}: {check['id']}: {check['detail']}"
        for service, checks in found.items()
        for check in checks
        if check["status"] == "fail"
    ]
    answer: dict[str, Any] = {"changed": False, "services": dict(found)}
    return answer | ({"failed": True, "msg": "\n".join(failed)} if failed else {})


def known(host: Host, service: str) -> list[str]:
    """Advisories of what runs; they never fail the task, and neither does a host that cannot tell
    its facts."""
    try:
        seen = onhost.call(host, "collect", "--service", service, timeout=120)
        manifest = seen["services"][0].get("manifest")
        found = advice(manifest, facts_of(host, service, manifest)) if manifest else []
    except OpsctlError as error:
        return [f"no advisories: {error.message}"]
    return [text for text, _ in advisories.lines(found)]
