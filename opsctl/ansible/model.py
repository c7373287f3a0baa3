"""The task of the role `model`: what is described with a source is fetched on the host."""

from __future__ import annotations

import json
import time
from typing import Any

from opsctl.ansible.action import Action, outcome
from opsctl.ansible.described import described, tokens
from opsctl.ansible.program import fetch_program
from opsctl.errors import OpsctlError, Problem, SpecError

POLL = 2.0  # seconds between two looks at a fetch
TOLD_EVERY = 10.0  # seconds between two lines about it
_CURRENT = "systemctl --no-pager show -P ActiveState {unit}; cat {progress} 2>/dev/null || true"


class ActionModule(Action):
    """Arguments: folders [{"path", "size" in bytes or none, "what", "source" or none}],
    remove_old."""

    def act(self) -> dict[str, Any]:
        folders = with_peers(self.args["folders"], self.task_vars)
        remove = bool(self.args.get("remove_old"))
        look = {"folders": folders, "remove_old": remove, "check": True}
        found = self.program("model", look)
        if found["problems"] or self.check:
            return outcome(found, bytes=found["bytes"], old=found["old"])
        if found["fetch"]:
            self._fetch([f for f in folders if f["path"] in found["fetch"]])
            after = self.program("model", look | {"remove_old": False})
            found |= {key: after[key] for key in ("bytes", "problems", "old")}
            found["problems"] += [f"{path}: not whole after its fetch" for path in after["fetch"]]
        if remove and found["old"]:
            gone = self.program("model", {"do": "tidy", "folders": folders, "check": False})
            told = [part["after_header"] for part in found["diff"]]
            found["diff"] += [part for part in gone["diff"] if part["after_header"] not in told]
        return outcome(found, bytes=found["bytes"], old=found["old"])

    def _fetch(self, folders: list[dict[str, Any]]) -> None:
        """One model after another: each takes what the line and the disk give."""
        name = str(self.task_vars["inventory_hostname"])
        services = described([name], self.task_vars, self._loader)[name].services
        token = tokens(services)
        for folder in folders:
            job = {"do": "begin", "folder": folder, "token": token.get(folder["path"])}
            begun = self.program("model", job | {"program": fetch_program()})
            if begun["problems"]:
                raise OpsctlError(begun["problems"][0], host=self.host.name, step="fetch")
            self._follow(folder["path"], begun["unit"])

    def _follow(self, path: str, unit: dict[str, str]) -> None:
        """Until the unit has ended. Raises OpsctlError with what it said last."""
        told_at, told_notes = 0.0, 0
        script = _CURRENT.format(unit=unit["name"], progress=unit["progress"])
        while True:
            # With something to read Ansible gives the command no terminal, which would colour it.
            said = self.host.run(["sh", "-c", script], stdin=b"\n").out
            state, _, rest = said.partition("\n")
            progress = json.loads(rest) if rest.strip() else {}
            notes = progress.get("notes", [])
            for note in notes[min(told_notes, len(notes)) :]:
                self._display.display(f"  {self.host.name}: {note}")
            told_notes = len(notes)
            if time.monotonic() - told_at >= TOLD_EVERY and progress:
                told_at = time.monotonic()
                self._display.display(f"  {self.host.name}: {path}: {line(progress)}")
            if progress.get("state") == "done":
                return
            if progress.get("state") == "failed" or state not in ("active", "activating"):
                raise OpsctlError(
                    progress.get("message") or f"{unit['name']} is gone before its end",
                    host=self.host.name,
                    step=f"fetch {path}",
                    hint="run it again: it goes on where it ended "
                    f"(journalctl -u {unit['name']} on the host)",
                )
            time.sleep(POLL)


def line(progress: dict[str, Any]) -> str:
    """How far a fetch is, in one line (pure)."""
    have, of, rate = progress["bytes"], progress.get("of") or 0, progress.get("rate") or 0.0
    if not of:
        return str(progress["state"])
    left = f", {(of - have) / rate / 60:.0f} min left" if rate > 0 and have < of else ""
    return (
        f"{have / 1e9:.1f} of {of / 1e9:.1f} GB ({100 * have // of} %), {progress['files']} of "
        f"{progress['of_files']} files, {rate / 1e6:.0f} MB/s{left}"
    )


def with_peers(folders: list[dict[str, Any]], task_vars: Any) -> list[dict[str, Any]]:
    """A peer becomes the address that the inventory has for it. Raises SpecError."""
    return [
        {
            **f,
            "source": f["source"] | {"rsync": _address(f["source"]["peer"], f["path"], task_vars)},
        }
        if (f.get("source") or {}).get("peer")
        else f
        for f in folders
    ]


def _address(peer: str, path: str, task_vars: Any) -> str:
    hosts = task_vars["hostvars"]
    if peer not in hosts or peer == task_vars["inventory_hostname"]:
        others = ", ".join(sorted(set(map(str, hosts)) - {str(task_vars["inventory_hostname"])}))
        problem = Problem(
            "is no other host of the inventory",
            host=str(task_vars["inventory_hostname"]),
            key="model.source.peer",
            value=peer,
            allowed=others,
        )
        raise SpecError([problem])
    return f"root@{hosts[peer].get('ansible_host') or peer}:{path}"
