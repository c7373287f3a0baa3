"""The one task of the last play: the rollout engine over all hosts of the play, run once.

It speaks to hosts through opsctl's own connections, since it must follow a guard for many minutes
and come back after a lost connection; Ansible's give no output before a command has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from opsctl import rollout
from opsctl.ansible import typed
from opsctl.ansible.action import Action, told
from opsctl.ansible.described import described
from opsctl.ansible.interrupted import telling
from opsctl.ansible.limit import refuse_limit
from opsctl.ansible.reading import asked
from opsctl.errors import NothingSelected, OpsctlError
from opsctl.inventory.model import HostEntry
from opsctl.remote import connect
from opsctl.remote.target import resolve
from opsctl.rollout.model import Key, Op, Takeover
from opsctl.views import progress

OPS: tuple[Op, ...] = ("swap", "rollback", "restart")
BOOKS = {"swap": "deploy.yml", "rollback": "rollback.yml"}  # ours, by what they do
STAGED = "service_staged"  # registered by the role `service`


class ActionModule(Action):
    """Arguments: op ("swap" unless said; rollback, restart), reason, canary (a host)."""

    _requires_connection = False

    def act(self) -> dict[str, Any]:
        refuse_limit(self.task_vars)
        op = op_of(self.args.get("op") or "swap")
        names = [str(name) for name in self.task_vars["ansible_play_hosts_all"]]
        entries = described(names, self.task_vars, self._loader)
        services = {name: tuple(entry.services) for name, entry in entries.items()}
        if not any(services.values()):
            raise NothingSelected(f"no service is described for {', '.join(names)}")
        nobody_left_out(services, self.task_vars["ansible_play_hosts"])
        chosen = {name: found for name, found in services.items() if found}
        if op != "swap":
            return self._ask(op, entries, chosen, None)
        staged = {host: self.task_vars["hostvars"][host].get(STAGED) for host in chosen}
        releases = {
            (host, service): wanted(host, service, staged[host])
            for host, names in chosen.items()
            for service in names
        }
        plan = self._plan(op, chosen, seen(staged), releases)
        if not plan.changes:  # as staging saw it moments ago: no host is asked again
            return self._planned(plan) if self.check else self._done({}, plan)
        return self._ask(op, entries, chosen, releases)

    def _ask(
        self,
        op: Op,
        entries: Mapping[str, HostEntry],
        chosen: Mapping[str, tuple[str, ...]],
        releases: Mapping[Key, rollout.Wanted] | None,
    ) -> dict[str, Any]:
        """Plan by what the hosts say now, and do it."""
        given = asked(self._play_context)
        hosts = {name: connect(resolve(name, entries[name].connection | given)) for name in chosen}
        try:
            plan = self._plan(op, chosen, rollout.look(hosts, chosen), releases)
            return self._planned(plan) if self.check else self._done(hosts, plan)
        finally:
            for host in hosts.values():
                host.close()

    def _plan(
        self,
        op: Op,
        chosen: Mapping[str, tuple[str, ...]],
        said: Mapping[str, Mapping[str, Any] | OpsctlError],
        releases: Mapping[Key, rollout.Wanted] | None,
    ) -> rollout.Plan:
        canary = str(self.args.get("canary") or "") or None
        return rollout.make(op, chosen, said, releases, canary=canary)

    def _planned(self, plan: rollout.Plan) -> dict[str, Any]:
        self._tell(plan.actions)
        return {
            "changed": bool(plan.changes),
            "plan": [
                {
                    "host": a.host,
                    "service": a.service,
                    "kind": a.kind,
                    "reason": a.reason,
                    "from_next_start": list(a.later),
                }
                for a in plan.actions
            ],
        }

    def _tell(self, actions: Iterable[rollout.Action]) -> None:
        for action in actions:
            self._display.display(f"{action.host} {action.service}: {action.reason}")
            if action.later:
                self._display.display(f"  from the next start on: {'; '.join(action.later)}")

    def _done(self, hosts: Mapping[str, Any], plan: rollout.Plan) -> dict[str, Any]:
        self._tell(plan.told)
        reason = str(self.args.get("reason") or f"ansible-playbook: {plan.op}")
        teller, again = Teller(self._display.display), typed.again(sys.argv, BOOKS.get(plan.op, ""))
        with telling(lambda: interrupted(teller.pictures, again)):
            results = rollout.run(hosts, plan, reason=reason, observer=teller)
        found: dict[str, Any] = {
            "changed": results.changed,
            "run": results.run,
            "hosts": by_host(results),
        }
        error = results.error()
        if error is None:
            return found
        return found | {"failed": True, "msg": self.once(told(error), error.host)}


class Teller:
    """Plain lines of a run as it goes, as `opsctl restart` tells them off a terminal."""

    def __init__(self, show: Any) -> None:
        self._show = show
        self.pictures: dict[Key, progress.Picture] = {}

    def __call__(self, host: str, service: str, event: Mapping[str, Any]) -> None:
        before = self.pictures.get((host, service), progress.Picture(host, service))
        after = self.pictures[host, service] = progress.advance(before, event)
        for line in progress.tell(before, after, event):
            self._show(line)


def interrupted(pictures: Mapping[Key, progress.Picture], again: str) -> str:
    """What is so when the task's process is ended, and what to type. Hosts are taken one by one, so
    at most one guard is at work; those before it are confirmed. `again`: the command as typed."""
    at_work = [one for one in pictures.values() if one.result is None]
    lines = [f"{one.host} {one.service}: interrupted; now: {one.phase}, and its guard confirms or "
             "restores by itself" for one in at_work]  # fmt: skip
    watch = [f"opsctl watch {one.service} --limit {one.host}" for one in at_work]
    lines = lines or ["interrupted before a host was begun, or between two: opsctl status tells"]
    way = "; then again: ".join([*watch, *([again] if again else [])])
    return "\n".join([*lines, *([f"next: {way}"] if way else [])])


def nobody_left_out(services: Mapping[str, Any], alive: Any) -> None:
    """Ansible drops failed and unreachable hosts without a word; a rollout must not."""
    gone = [name for name, found in services.items() if found and name not in set(map(str, alive))]
    if gone:
        raise OpsctlError(
            f"nothing was restarted, since {', '.join(gone)} failed or could not be reached",
            step="rollout",
            hint="see the messages above; leave a host out on purpose with --limit",
        )


def op_of(said: object) -> Op:
    for op in OPS:
        if op == said:
            return op
    raise OpsctlError(f"there is no op {said}; there is: {', '.join(OPS)}")


def seen(staged: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What staging saw on each host before it sent anything, as `collect` would tell it."""
    return {
        host: {"services": [found["before"] for found in said["services"].values()]}
        for host, said in staged.items()
    }


def wanted(host: str, service: str, staged: Any) -> rollout.Wanted:
    """`changed` is left out: what had to be sent was sent by the play before, or with --check
    told by it."""
    found = ((staged or {}).get("services") or {}).get(service)
    if not found:
        raise OpsctlError(
            f"no release of {service} was staged in this run",
            host=host,
            step="rollout",
            hint="run the playbook from its beginning, without --start-at-task or --tags",
        )
    taken = Takeover.from_json(found.get("takeover"))
    return rollout.Wanted(str(found["digest"]), found["manifest"], takeover=taken)


def by_host(results: rollout.Results) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for result in results.results:
        found.setdefault(result.host, {})[result.service] = result.as_json()
    return found
