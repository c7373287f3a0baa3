"""What comes of a restart, a start or a rollback, told before it is done: the host's own release is
read from it and forecast as a new one would be. No description is asked: one that was changed since
is not what starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsctl import forecast
from opsctl.errors import OpsctlError
from opsctl.release.model import Release
from opsctl.remote import onhost
from opsctl.remote.host import Host
from opsctl.rollout import staging
from opsctl.rollout.foresight import detail
from opsctl.rollout.model import ZERO, Action, Key, Plan
from opsctl.rollout.plan import states_of
from opsctl.rollout.planned import Planned
from opsctl.rollout.staging import Staged

TIMEOUT = 120.0  # seconds; the unit is verified, and ports and GPUs are looked at


def foreseen(host: Host, actions: Sequence[Action], answer: Mapping[str, Any]) -> list[Staged]:
    """Of one host, what each of its `actions` starts. `answer`: what it said to `collect`. Raises
    OpsctlError: what cannot be foreseen can be done all the same, and the guard judges it again."""
    states = states_of(answer)
    found = []
    for action in actions:
        state = states.get(action.service) or {}
        if (digest := target(action, state)) and action.restarts and action.kind != "stop":
            found.append(_one(host, action, state, digest))
    return found


def target(action: Action, state: Mapping[str, Any]) -> str:
    """The release that the guard will bring up: see onhost/swap.py. "" if none is known."""
    release = state.get("release") or {}
    running = None if release.get("edited") else release.get("running")
    return str(action.target or release.get("confirmed") or running or "")


def _one(host: Host, action: Action, state: Mapping[str, Any], digest: str) -> Staged:
    name = action.service
    told = onhost.call(host, "release", name, digest, timeout=TIMEOUT)
    manifest: Mapping[str, Any] = told["manifest"]
    one = Staged(
        host.name,
        name,
        digest,
        False,
        str(told["diff"]),
        "",
        Release(name, digest, {}, manifest),
        state,
        problems=tuple(map(str, told["problems"])),
        hints=tuple(map(str, told["hints"])),
    )
    return one if digest == ZERO else _with_forecast(host, one)


def _with_forecast(host: Host, one: Staged) -> Staged:
    """Its verdict is told and refuses nothing: what ran here before needs no leave to run again."""
    manifest = one.release.manifest
    facts = staging.facts_of(host, one.service, manifest)
    facts.pop("process", None)
    found = forecast.forecast({**manifest, "expect": None}, facts)
    return staging.foretold(host, one, found, facts)


def planned(plan: Plan, said: Mapping[str, Sequence[Staged] | OpsctlError]) -> Planned:
    """`said`: what was foreseen, by host; of a host where nothing could be, nothing is told."""
    staged: dict[Key, Staged] = {
        (one.host, one.service): one
        for found in said.values()
        if not isinstance(found, OpsctlError)
        for one in found
    }
    actions = {action.key: action for action in plan.actions}
    details = {k: detail(one, actions[k]) for k, one in staged.items() if one.digest != ZERO}
    return Planned(plan, staged, details, {})
