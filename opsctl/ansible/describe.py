"""The first task of every playbook: all descriptions are right before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsctl.ansible import fitting, rolevars
from opsctl.ansible.action import Action
from opsctl.ansible.described import described, needs
from opsctl.ansible.limit import refuse_limit
from opsctl.ansible.reading import asked
from opsctl.errors import NothingSelected, Problem, SpecError
from opsctl.inventory.model import HostEntry
from opsctl.remote.target import resolve
from opsctl.rollout.order import ordered
from opsctl.spec import together


class ActionModule(Action):
    """Run once; no host is contacted. Answers what each host needs, by host name. Argument: canary,
    a host that must be among them."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        refuse_limit(self.task_vars)
        names = [str(name) for name in self.task_vars["ansible_play_hosts_all"]]
        ordered(names, str(self.args.get("canary") or "") or None)
        roles = rolevars.judge(names, self.task_vars["hostvars"], self._loader)
        problems = together(roles.problems)
        try:
            hosts = described(names, self.task_vars, self._loader)
        except SpecError as error:
            raise SpecError([*error.problems, *problems]) from None
        described_for = {name: entry.services for name, entry in hosts.items()}
        problems += together(fitting.problems(roles.asks, described_for))
        problems += self._unreached(hosts)
        if problems:
            raise SpecError(problems)
        if not any(entry.services for entry in hosts.values()):
            raise NothingSelected(
                f"no service is described for {', '.join(names)}: sglang_services is missing there"
            )
        folder = Path(str(self.task_vars.get("inventory_dir") or "."))
        return {
            "changed": False,
            "hosts": {name: needs(entry.services, folder) for name, entry in hosts.items()},
        }

    def _unreached(self, hosts: Mapping[str, HostEntry]) -> list[Problem]:
        """What the rollout's own connections could not honour: better told now than when all is
        staged. Asks OpenSSH, and no host."""
        given = asked(self._play_context)
        found: list[Problem] = []
        for name, entry in hosts.items():
            try:
                resolve(name, entry.connection | given)
            except SpecError as error:
                found += error.problems
        return found
