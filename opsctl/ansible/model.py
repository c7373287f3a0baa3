"""The task of the role `model`: what is described with a source is fetched on the host."""

from __future__ import annotations

import json
import time
from typing import Any

from opsctl.ansible import modelfolders
from opsctl.ansible.action import Action, outcome
from opsctl.ansible.described import described, tokens
from opsctl.ansible.program import fetch_program
from opsctl.errors import OpsctlError, Problem, SpecError

POLL = 2.0  # seconds between two looks at a fetch
TOLD_EVERY = 10.0  # seconds between two lines about it
_CURRENT = (
    "systemctl --no-pager show -p ActiveState -p NRestarts {unit}; "
    "cat {progress} 2>/dev/null || true"
)


class ActionModule(Action):
    """Arguments: folders [{"path", "size" in bytes or none, "what", "source" or none,
    "load_format", "own_config"}], remove_old."""

    def act(self) -> dict[str, Any]:
        given = self.given("model")
        folders = with_peers(modelfolders.read(given["folders"]), self.task_vars)
        remove = bool(given.get("remove_old"))
        look = {"folders": folders, "remove_old": remove, "check": True}
        found = self.program("model", look)
        if found["problems"] or self.check:
            return self._outcome(found)
        if found["fetch"]:
            self._fetch([f for f in folders if f["path"] in found["fetch"]])
            after = self.program("model", look | {"remove_old": False})
            found |= {key: after[key] for key in ("bytes", "problems", "old", "warnings")}
            found["problems"] += [f"{path}: not whole after its fetch" for path in after["fetch"]]
        if remove and found["old"]:
            gone = self.program("model", {"do": "tidy", "folders": folders, "check": False})
            told = [part["after_header"] for part in found["diff"]]
            found["diff"] += [part for part in gone["diff"] if part["after_header"] not in told]
        return self._outcome(found)

    def _outcome(self, found: dict[str, Any]) -> dict[str, Any]:
        more = warned(found, str(self.task_vars["inventory_hostname"]))
        return outcome(found, bytes=found["bytes"], old=found["old"], **more)

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
        told_at, told_notes, deaths = 0.0, 0, 0
        script = _CURRENT.format(unit=unit["name"], progress=unit["progress"])
        while True:
            # With something to read Ansible gives the command no terminal, which would colour it.
            said = self.host.run(["sh", "-c", script], stdin=b"\n").out
            state, progress = current(said)
            for note in unseen(progress, told_notes):
                self._tell(note)
            told_notes = progress.get("noted", 0)
            if int(state.get("NRestarts") or 0) > deaths:
                deaths = int(state["NRestarts"])
                self._tell(f"{path}: the fetch died and goes on (journalctl -u {unit['name']})")
            if time.monotonic() - told_at >= TOLD_EVERY and progress:
                told_at = time.monotonic()
                self._tell(f"{path}: {line(progress)}")
            if progress.get("state") == "done":
                return
            over = state.get("ActiveState") not in ("active", "activating")
            if progress.get("state") == "failed" or over:
                raise OpsctlError(
                    progress.get("message") or f"{unit['name']} is gone before its end",
                    host=self.host.name,
                    step=f"fetch {path}",
                    hint=next_step(progress, unit["name"], self.host.name),
                )
            time.sleep(POLL)

    def _tell(self, text: str) -> None:
        self._display.display(f"  {self.host.name}: {text}")


def warned(found: dict[str, Any], host: str) -> dict[str, Any]:
    """The warnings of a look as those of a task, with the host's name (pure)."""
    told = [f"{host}: {text}" for text in found.get("warnings") or ()]
    return {"warnings": told} if told else {}


def current(said: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Properties of the unit, and its progress; {} of what is not known yet (pure)."""
    shown, _, rest = said.partition("\n{")
    properties = dict(row.partition("=")[::2] for row in shown.splitlines())
    return properties, json.loads("{" + rest) if rest else {}


def unseen(progress: dict[str, Any], told: int) -> list[str]:
    """Notes after the first `told`; all that are kept, if the fetch has begun anew (pure)."""
    noted = progress.get("noted", 0)
    new = noted - told if noted >= told else noted
    notes: list[str] = progress.get("notes", [])
    return notes[max(len(notes) - new, 0) :]


def next_step(progress: dict[str, Any], unit: str, host: str) -> str:
    """About a fetch that has failed; what no repeat cures is not to be repeated (pure)."""
    log = f"(journalctl -u {unit} on {host})"
    if progress.get("again", True):
        return f"run it again: it goes on where it ended {log}"
    return f"{progress.get('hint') or 'put that right'}; without that no repeat helps {log}"


def line(progress: dict[str, Any]) -> str:
    """How far a fetch is, in one line (pure)."""
    have, of, rate = progress["bytes"], progress.get("of"), progress.get("rate") or 0.0
    fault = f"; tried again: {progress['fault']}" if progress.get("fault") else ""
    if not progress.get("of_files"):
        return f"{progress['state']}{fault}"
    left = f", {(of - have) / rate / 60:.0f} min left" if of and rate > 0 and have < of else ""
    size = f"{_size(have)} of {_size(of)} ({100 * have // of} %)" if of else _size(have)
    return (
        f"{size}, {progress['files']} of {progress['of_files']} files, {_size(rate)}/s{left}{fault}"
    )


def _size(count: float) -> str:
    """Bytes in the unit that leaves a figure before the point."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count:.0f} bytes"


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
