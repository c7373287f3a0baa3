"""The task of the role `nvidia_driver`: its program on the host, and a reboot where allowed."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure

from opsctl.ansible import typed
from opsctl.ansible.action import Action, outcome
from opsctl.ansible.compatibility import least_drivers
from opsctl.ansible.target.driverplan import ALLOW_REBOOT, ROLL
from opsctl.ansible.target.repository import wrong
from opsctl.errors import OpsctlError, Problem, SpecError

_BOOT = "/proc/sys/kernel/random/boot_id"


class ActionModule(Action):
    """Arguments: those of the program, `allow_reboot`, `reboot_timeout` (seconds)."""

    def act(self) -> dict[str, Any]:
        given = self.given("nvidia_driver")
        args = driver_args(given) | {"check": self.check}
        args |= rolls(sys.argv, given["allow_reboot"])
        found = self.program("nvidia_driver", args)
        if found["problems"] or not found["reboot"]:
            return self._told(found)
        if self.check or not given["allow_reboot"]:
            return self._told(found) | ({} if self.check else refusal(found["reboot"]))
        self._reboot(float(given["reboot_timeout"]))
        after = self.program("nvidia_driver", args)
        after["changed"] = True
        after["diff"] = [*found["diff"], reboot_diff(found["reboot"]), *after["diff"]]
        if after["reboot"] and not after["problems"]:
            after["problems"] = [f"after the reboot still: {'; '.join(after['reboot'])}"]
        return self._told(after)

    def _told(self, found: dict[str, Any]) -> dict[str, Any]:
        if found["reboot"] and self.check:
            found["warnings"].append(f"a reboot is needed: {'; '.join(found['reboot'])}")
        return outcome(found, driver=found["driver"], warnings=found["warnings"])

    def _reboot(self, patience: float) -> None:
        """Raises OpsctlError if the host does not come back."""
        before = self._boot_id()
        self._display.display(f"  {self.host.name}: booting anew")
        # Later than this command's answer, so that the connection ends in order.
        self.host.run(["systemd-run", "--quiet", "--on-active=1", "systemctl", "reboot"])
        end = time.monotonic() + patience
        while time.monotonic() < end:
            time.sleep(2)
            self._connection.reset()
            now = self._boot_id()
            if now and now != before:
                return
        raise OpsctlError(
            f"not back {patience:.0f} s after its reboot",
            host=self.host.name,
            step="nvidia_driver",
            hint="look at its console; deploy again when it is up",
        )

    def _boot_id(self) -> str:
        """ "" while it does not answer."""
        try:
            answer = self.host.run(["cat", _BOOT])
        except AnsibleConnectionFailure:
            return ""
        return answer.out.strip() if answer.rc == 0 else ""


def driver_args(given: dict[str, Any]) -> dict[str, Any]:
    """The task's arguments (as the role's spec means them: rolespec) as the program takes them,
    without `check`."""
    plain = {k: v for k, v in given.items() if k not in ("allow_reboot", "reboot_timeout")}
    plain |= {key: str(plain[key] or "") for key in ("branch", "version")}
    needs = list(plain.get("needs") or [])
    plain["needs"] = least_drivers(needs)
    plain["without_gpus"] = [one["service"] for one in needs if one.get("device", "cuda") != "cuda"]
    if not plain["branch"]:
        return plain
    return plain | {"repository": with_key(plain["repository"], "nvidia_driver_repository")}


def rolls(argv: Sequence[str], allow_reboot: bool) -> dict[str, str]:
    """How the playbook is typed that upgrades drivers host by host, for a run of `argv`. A reboot
    is refused by it too, unless it is allowed."""
    found = {"roll": typed.beside(argv, "deploy.yml", "upgrade_driver.yml") or ROLL}
    if not allow_reboot:
        more = typed.beside([*argv, *ALLOW_REBOOT.split()], "deploy.yml", "upgrade_driver.yml")
        found["roll_rebooting"] = more or f"{ROLL} {ALLOW_REBOOT}"
    return found


def with_key(repository: dict[str, Any], variable: str) -> dict[str, Any]:
    """The key's file is read here; one by its address is fetched by the host. Raises SpecError."""
    named = repository | {"variable": variable}
    key = str(repository.get("key") or "")
    if not key or key.startswith(("http://", "https://")):
        return named
    try:
        content = Path(key).expanduser().read_bytes()
    except OSError as error:
        message = f"this file of the controller cannot be read: {error.strerror or error}"
        problem = Problem(message, key=f"{variable}.key", value=key)
        raise SpecError([problem]) from None
    return named | {"b64": base64.b64encode(content).decode()}


def refuse_repository(repository: dict[str, Any], variable: str) -> None:
    """Raises SpecError for what a host would refuse too, and what can be told without one."""
    part, why = wrong(with_key(repository, variable))
    if why:
        raise SpecError([Problem(why, key=f"{variable}.{part}")])


def reboot_diff(reasons: list[str]) -> dict[str, str]:
    told = "".join(f"{reason}\n" for reason in reasons)
    return {"before_header": "boot", "after_header": "boot", "before": told, "after": ""}


def refusal(reasons: list[str]) -> dict[str, Any]:
    """What a host needs on which no service runs, and that nobody has allowed."""
    return {
        "failed": True,
        "msg": f"a reboot is needed: {'; '.join(reasons)}. Allow it with {ALLOW_REBOOT}, or reboot "
        "the host and deploy again",
    }
