"""The one task of upgrade_driver.yml: drivers of all hosts of the play, host by host, run once.

It speaks to hosts through opsctl's own connections, as the rollout does, since it must follow a
guard across a reboot; the packages are moved by the program of the role `nvidia_driver`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl.ansible import program, rolespec, rolevars, typed
from opsctl.ansible.action import Action, told
from opsctl.ansible.described import described, gpu_needs
from opsctl.ansible.interrupted import telling
from opsctl.ansible.limit import refuse_limit
from opsctl.ansible.nvidia_driver import driver_args
from opsctl.ansible.reading import asked, read_variables
from opsctl.ansible.rollout import Teller
from opsctl.errors import OpsctlError, SpecError, Unreachable, folded
from opsctl.inventory.model import HostEntry
from opsctl.paths import share
from opsctl.remote import connect, fanout, onhost
from opsctl.remote.host import Host
from opsctl.remote.target import resolve
from opsctl.rollout import serving
from opsctl.rollout.driver import PLAYBOOK, Seen, Step, Wish, at_work, step
from opsctl.rollout.driverend import Ended, Place, interrupted, lines
from opsctl.rollout.driverhost import Program, roll
from opsctl.rollout.order import ordered
from opsctl.rollout.run import new_run, utc, whoami
from opsctl.rollout.steps import Order
from opsctl.spec import together

ROLE = "nvidia_driver"
BOOK = "upgrade_driver.yml"
LOOK = 180.0  # s for all hosts together: a package manager, nvidia-smi and doctor are asked
WAIT = (
    "another roll may be booting it anew: `opsctl status` shows who is at work; wait, then again: "
    f"{PLAYBOOK}. A host that --limit leaves out is not counted as down: the others would be taken "
    "down beside it"
)
Wishes = Mapping[str, Mapping[str, Any]]
"""By host, the role's task arguments."""


class ActionModule(Action):
    """Arguments: reason, canary (a host), allow_down (hosts that are known not to serve). What is
    wished stands in the role's variables."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = retyped(super().run(tmp, task_vars), typed.again(sys.argv, BOOK))
        return found

    def act(self) -> dict[str, Any]:
        refuse_limit(self.task_vars)
        names = ordered(
            [str(name) for name in self.task_vars["ansible_play_hosts_all"]],
            str(self.args.get("canary") or "") or None,
        )
        hostvars = self.task_vars["hostvars"]
        entries = described(names, self.task_vars, self._loader)
        wrong = rolevars.wrong(names, hostvars, self._loader)
        if wrong:
            raise SpecError(together(wrong))
        wishes = wished(names, entries, hostvars, self._loader)
        refuse_unreadable(wishes)
        services = {name: tuple(entry.services) for name, entry in entries.items()}
        given = asked(self._play_context)
        hosts = {name: connect(resolve(name, entries[name].connection | given)) for name in names}
        try:
            allowed = refuse_unknown(self.args.get("allow_down"), names)
            plan = planned(names, wishes, looked(hosts, wishes), services)
            serving.refuse(plan, allowed)
            for one in plan:
                for line in (one.line, *(f"{one.host}: {text}" for text in one.told)):
                    self._display.display(line)
            if self.check:
                return result_of_check(plan)
            ended = self._rolled(hosts, plan, wishes, allowed)
            found = result(ended)
            return found | (
                {"msg": self.once(found["msg"], at_fault(ended))} if "msg" in found else {}
            )
        finally:
            for host in hosts.values():
                host.close()

    def _rolled(
        self,
        hosts: Mapping[str, Host],
        plan: Sequence[Step],
        wishes: Wishes,
        allowed: Sequence[str],
    ) -> list[Ended]:
        order = Order(
            run=new_run(),
            owner=whoami(),
            reason=str(self.args.get("reason") or "upgrade_driver"),
            created=utc(),
            observer=Teller(self._display.display),
        )
        place = Place()

        def words() -> str:
            bad = interrupted(place)
            found = lines(bad) if bad else ["interrupted between two hosts", f"next: {PLAYBOOK}"]
            return str(retyped("\n".join(found), typed.again(sys.argv, BOOK)))

        with telling(words):
            return roll(
                hosts,
                plan,
                order,
                lambda name: asking(hosts[name], wishes[name]),
                allowed,
                place,
            )


def wished(
    names: Sequence[str], entries: Mapping[str, HostEntry], hostvars: Any, loader: Any
) -> dict[str, dict[str, Any]]:
    """The role's task arguments of each host: its defaults, and over them what the inventory and
    the command line say, as the role's spec means it."""
    defaults = loader.load_from_file(str(share() / "roles" / ROLE / "defaults" / "main.yml"))
    own = read_variables(names, list(defaults), hostvars, loader)
    found = {}
    for name in names:
        values = rolespec.converted({**defaults, **own[name]}, loader)
        given = {key.removeprefix(f"{ROLE}_"): value for key, value in values.items()}
        given["needs"] = gpu_needs(entries[name].services)
        found[name] = given
    return found


def refuse_unreadable(wishes: Wishes) -> None:
    """Raises SpecError for keys of repositories that cannot be read here, on the controller: no
    host is asked then."""
    problems = []
    for name, given in wishes.items():
        try:
            driver_args(dict(given))
        except SpecError as error:
            problems += [replace(problem, host=name) for problem in error.problems]
    if problems:
        raise SpecError(together(problems))


def asking(host: Host, given: Mapping[str, Any]) -> Program:
    """The role's program on one host: "look", "fetch", "install"."""
    args = {**driver_args(dict(given)), "rolling": True, "roll": PLAYBOOK}

    def ask(what: str) -> Mapping[str, Any]:
        more = {"check": what == "look", "fetch": what == "fetch", "stopping": what != "install"}
        return program.run(host, ROLE, {**args, **more})

    return ask


def wish(given: Mapping[str, Any]) -> Wish:
    return Wish(
        str(given["branch"] or ""),
        str(given["version"] or ""),
        given["allow_reboot"],
        float(given["reboot_timeout"]),
    )


def looked(hosts: Mapping[str, Host], wishes: Wishes) -> dict[str, Seen]:
    """All hosts at once. Raises OpsctlError if any does not answer: nothing is begun then."""

    def look(name: str) -> Seen:
        host = hosts[name]
        found = asking(host, wishes[name])("look")
        collected = onhost.call(host, "collect", "--probe", timeout=LOOK)
        checks = onhost.call(host, "doctor", stdin={"manifests": []}, timeout=LOOK)["checks"]
        return Seen(found, collected, checks)

    outcomes = fanout.each(list(hosts), look, timeout=LOOK)
    found = {one.name: one.value for one in outcomes if one.value is not None}
    silent = {one.name: one.error for one in outcomes if one.error is not None}
    if silent:
        raise silence(silent, found)
    return found


def silence(silent: Mapping[str, OpsctlError], found: Mapping[str, Seen]) -> OpsctlError:
    """A host that does not answer may be the one that another roll has taken down: never is it
    left out by a hint of ours, since the others would be taken down beside it."""
    said = folded((name, error.message) for name, error in silent.items())
    told = "; ".join(f"{names}: {text}" for names, text in said)
    gone = any(isinstance(error, Unreachable) for error in silent.values())
    hints = list(dict.fromkeys(error.hint for error in silent.values() if error.hint))
    if not gone:
        text = f"nothing was touched, since not every host could be read: {told}"
        return OpsctlError(text, step="driver", hint="; ".join(hints) or "put that right")
    busy = [f"{text} ({name})" for name, one in found.items() for text, _ in at_work(name, one)]
    text = f"nothing was touched, since not every host answers: {told}"
    return Unreachable("; ".join([text, *busy]), step="driver", hint="; ".join([*hints, WAIT]))


def planned(
    names: Sequence[str],
    wishes: Wishes,
    seen: Mapping[str, Seen],
    services: Mapping[str, Sequence[str]],
) -> list[Step]:
    """In the order of the roll. `services`: those described, by host. Raises OpsctlError with what
    is wrong on any host: a roll that is known to stop half way is not begun."""
    plan, wrong = [], []
    for name in names:
        try:
            found = step(name, wish(wishes[name]), seen[name])
            down = serving.down(services.get(name, ()), seen[name].collected)
            plan.append(replace(found, described=tuple(services.get(name, ())), down=down))
        except OpsctlError as error:
            wrong.append((name, told(error)))
    if wrong:
        lines = [f"{hosts}: {text}" for hosts, text in folded(wrong)]
        raise OpsctlError("\n".join(["nothing was touched:", *lines]))
    return serving.ordered(plan)


def refuse_unknown(said: object, names: Sequence[str]) -> list[str]:
    """The hosts that are allowed not to serve. Raises OpsctlError for one that is not there."""
    listed = said if isinstance(said, list) else str(said or "").split(",")
    hosts = [str(name).strip() for name in listed if str(name).strip()]
    unknown = [name for name in hosts if name not in names]
    if unknown:
        raise OpsctlError(
            f"{serving.ALLOW}: {', '.join(unknown)} is none of the hosts of this roll",
            step="driver",
            hint=f"there is: {', '.join(names)}",
        )
    return hosts


def result_of_check(plan: Sequence[Step]) -> dict[str, Any]:
    steps = [{"host": one.host, "kind": one.kind, "plan": one.line} for one in plan]
    return {"changed": any(one.kind != "none" for one in plan), "plan": steps}


def retyped(found: Any, command: str) -> Any:
    """A result in which this playbook is named as it was run: with inventory, limit, options."""
    if isinstance(found, dict):
        return {key: retyped(value, command) for key, value in found.items()}
    if isinstance(found, list):
        return [retyped(value, command) for value in found]
    return found.replace(PLAYBOOK, command) if command and isinstance(found, str) else found


def at_fault(ended: Sequence[Ended]) -> str:
    bad = _stopped_by(ended)
    return bad.host if bad else ""


def _stopped_by(ended: Sequence[Ended]) -> Ended | None:
    return next((one for one in ended if not one.good and one.outcome != "skipped"), None)


def result(ended: Sequence[Ended]) -> dict[str, Any]:
    """The task's result. Of the host that stopped the roll: what is so now, what to type next."""
    found: dict[str, Any] = {
        "changed": any(one.outcome not in ("unchanged", "refused", "skipped") for one in ended),
        "hosts": {one.host: one.as_json() for one in ended},
    }
    bad = _stopped_by(ended)
    if bad is None:
        return found
    skipped = [one.host for one in ended if one.outcome == "skipped"]
    said = lines(bad) + ([f"not touched: {', '.join(skipped)}"] if skipped else [])
    return found | {"failed": True, "msg": "\n".join(said)}
