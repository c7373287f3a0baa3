"""The first task of every playbook: all descriptions are right before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsctl.ansible.action import Action
from opsctl.ansible.described import described, needs
from opsctl.errors import NothingSelected


class ActionModule(Action):
    """Run once; no host is contacted. Answers what each host needs, by host name."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        names = [str(name) for name in self.task_vars["ansible_play_hosts_all"]]
        hosts = described(names, self.task_vars, self._loader)
        if not any(entry.services for entry in hosts.values()):
            raise NothingSelected(
                f"no service is described for {', '.join(names)}: sglang_services is missing there"
            )
        folder = Path(str(self.task_vars.get("inventory_dir") or "."))
        return {
            "changed": False,
            "hosts": {name: needs(entry.services, folder) for name, entry in hosts.items()},
        }
