"""The first task of every playbook: all descriptions are right before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsctl.ansible import rolevars
from opsctl.ansible.action import Action, refuse_empty_limit
from opsctl.ansible.described import described, needs
from opsctl.errors import NothingSelected, SpecError


class ActionModule(Action):
    """Run once; no host is contacted. Answers what each host needs, by host name."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        refuse_empty_limit()
        names = [str(name) for name in self.task_vars["ansible_play_hosts_all"]]
        problems = rolevars.wrong(names, self.task_vars["hostvars"], self._loader)
        try:
            hosts = described(names, self.task_vars, self._loader)
        except SpecError as error:
            raise SpecError([*error.problems, *problems]) from None
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
