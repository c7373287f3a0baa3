"""The task of read.yml: writes the descriptions of all hosts to the controller, as one file."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from opsctl.ansible import rolevars
from opsctl.ansible.reading import asked, read_as_far
from opsctl.errors import SpecError

OUT = "OPSCTL_READ_OUT"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Takes no arguments: the file comes from the environment, so that no log names it.

    The document holds secrets in the clear; nothing of it is returned as the task's result.
    """

    _supports_check_mode = True
    _requires_connection = False
    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        out = os.environ.get(OUT)
        if not out:
            message = f"{OUT} must name the file that the descriptions are written to"
            return {"failed": True, "msg": message}
        names = [str(name) for name in task_vars["ansible_play_hosts_all"]]
        hosts, unread = read_as_far(names, task_vars["hostvars"], self._loader)
        for host in hosts.values():
            host["vars"] |= asked(self._play_context)
        roles = rolevars.as_far(names, task_vars["hostvars"], self._loader)
        document: dict[str, Any] = {
            "hosts": hosts,
            "unread": [dataclasses.asdict(problem) for problem in unread],
            "roles": [dataclasses.asdict(problem) for problem in roles.problems],
            "asks": roles.asks,
            "sources": sources(
                task_vars.get("ansible_inventory_sources") or (), self._loader.get_basedir()
            ),
        }
        write(Path(out), document)
        if unread:
            return {"failed": True, "msg": str(SpecError(unread))}
        return {"changed": False, "count": len(names)}


def write(path: Path, document: dict[str, Any]) -> None:
    """Readable by its owner alone from its first byte on, and whole or not there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(document, stream)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def sources(inventory: Any, basedir: str) -> list[str]:
    """Every file that the descriptions may have come from: a cache is stale if one is newer."""
    found: set[Path] = set()
    for source in inventory:
        path = Path(str(source))
        if path.is_dir():
            found.update(p for p in path.rglob("*") if p.is_file())
        elif path.exists():
            found.add(path)
    folders = {p.parent if p.is_file() else p for p in map(Path, map(str, inventory))}
    for folder in folders | {Path(basedir)}:
        for kind in ("group_vars", "host_vars"):
            found.update(p for p in (folder / kind).rglob("*") if p.is_file())
    return sorted(str(p.resolve()) for p in found)
