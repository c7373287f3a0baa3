"""A rolling upgrade of drivers: what is to be done on each host, and what forbids it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opsctl.errors import OpsctlError
from opsctl.onhost.doctor.examine import FAULTS
from opsctl.onhost.doctor.fault import FAIL
from opsctl.onhost.model import ENGAGED
from opsctl.remote.onhost import locked
from opsctl.rollout.model import ZERO

PLAYBOOK = "ansible-playbook playbooks/upgrade_driver.yml"
ALLOW_REBOOT = "-e nvidia_driver_allow_reboot=true"
FABRIC = "nvidia-fabricmanager.service"
# What an upgrade may well be for; the rest of doctor's preconditions has to hold beforehand.
MENDED = ("driver", "nouveau", "fabric")
# Parts that are not replaced under a service that runs.
STOPS = frozenset({"driver", "fabric", "companions"})
_PARTS = {
    "persistence": "nvidia-persistenced of its version",
    "companions": "companions of its version",
}

Kind = Literal["none", "start", "upgrade"]


@dataclass(frozen=True)
class Wish:
    """What a host's variables ask for."""

    branch: str
    version: str
    allow_reboot: bool
    reboot_timeout: float  # s until a host that boots anew is taken for lost

    @property
    def asked(self) -> str:
        return self.version or f"{self.branch}.*"


@dataclass(frozen=True)
class Seen:
    """What a host told. `found`: the role's program, with `check` and `stopping`; `collected`:
    `collect` of all its services; `checks`: doctor's."""

    found: Mapping[str, Any]
    collected: Mapping[str, Any]
    checks: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Step:
    """What is done with one host. `services`: those that are drained, stopped, and started behind
    their gates; `locked`: all that nobody else may work on meanwhile; `gpus`: how many are well;
    `down`: of the `described` services those that do not serve now, and how they stand
    (serving.py); `half`: an earlier roll has begun here, and was not brought to its end."""

    host: str
    kind: Kind
    reason: str
    services: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()
    have: str = ""
    asked: str = ""
    reboot: bool = False
    gpus: int = 0
    fabric: bool = False
    timeout: float = 1200.0
    told: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    down: Mapping[str, str] = field(default_factory=dict)
    half: bool = False

    @property
    def line(self) -> str:
        """One line for the operator."""
        if self.kind == "none":
            return f"{self.host}: {self.reason}"
        names = " ".join(self.services)
        parts = [f"drain and stop {names}"] if names and self.kind == "upgrade" else []
        parts += ["packages"] if self.kind == "upgrade" else []
        parts += ["reboot"] if self.reboot else []
        parts += ["doctor", *([f"start {names}", "gates"] if names else [])]
        return f"{self.host}: {self.reason}: {', '.join(parts)}"


def step(host: str, wish: Wish, seen: Seen) -> Step:
    """Raises OpsctlError for what must be put right before anything of the roll is begun."""
    found = seen.found
    states = {state["service"]: state for state in seen.collected.get("services") or ()}
    parked = [name for name, state in states.items() if state.get("parked") is not None]
    if not wish.branch:
        return Step(host, "none", "nvidia_driver_branch is not set: left alone")
    if found["problems"]:
        raise OpsctlError("; ".join(found["problems"]), host=host, step="driver")
    if not found["changed"] and not found["reboot"] and not parked:
        return Step(host, "none", f"driver {found['driver']} is there and runs: nothing to do")
    upgrade = bool(found["changed"] or found["reboot"])
    reboot = bool(found["reboot"] or ("driver" in found["parts"] and found["loaded"]))
    # Marks and daemons are put right under services that run; modules and fabric manager are not.
    stops = reboot or not found["loaded"] or bool(STOPS & set(found["parts"]))
    gpus = sum(gpu.get("state", "ok") == "ok" for gpu in seen.collected.get("gpus") or ())
    running = [name for name, state in states.items() if state.get("state") in ENGAGED]
    _raise(
        host,
        *_allowed(wish, found, reboot),
        *(one for name, state in states.items() for one in _free(host, name, state)),
        *(one for name in running for one in _comes_back(host, name, states[name])),
        *_sound(host, seen.checks, gpus),
        *_strangers(found),
    )
    return Step(
        host,
        "upgrade" if upgrade else "start",
        _reason(wish, found) if upgrade else f"driver {found['driver']} runs, and it is parked",
        tuple(sorted({*running, *parked} if upgrade and stops else parked)),
        tuple(sorted(name for name, state in states.items() if _ours(state))),
        str(found["driver"] or found["loaded"] or ""),
        wish.asked,
        reboot,
        gpus,
        bool(found.get("fabric")),
        wish.reboot_timeout,
        tuple(_told(states, running, parked, reboot)),
        half=bool(parked or (found["reboot"] and not found["changed"])),
    )


def _reason(wish: Wish, found: Mapping[str, Any]) -> str:
    have, parts = found["driver"], found["parts"]
    if "driver" in parts:
        return f"driver {have or 'none'} → {wish.asked}"
    if parts:
        return f"driver {have} lacks {', '.join(_PARTS.get(part, part) for part in parts)}"
    if found["reboot"]:
        return f"driver {have} waits for a reboot: {'; '.join(found['reboot'])}"
    return f"driver {have} is not as it is to be"


Wrong = tuple[str, str]
"""What forbids it, and what to type."""


def _raise(host: str, *wrong: Wrong) -> None:
    """All that is wrong with one host at once."""
    if wrong:
        messages, hints = zip(*wrong, strict=True)
        hint = "; ".join(dict.fromkeys(hints))
        raise OpsctlError("; ".join(messages), host=host, step="driver", hint=hint)


def _allowed(wish: Wish, found: Mapping[str, Any], reboot: bool) -> list[Wrong]:
    if not reboot or wish.allow_reboot:
        return []
    text = f"{_reason(wish, found)} needs a reboot, and none is allowed"
    return [(text, f"allow it for this roll: {PLAYBOOK} {ALLOW_REBOOT}")]


def _ours(state: Mapping[str, Any]) -> bool:
    release = state.get("release") or {}
    return bool(release.get("confirmed")) or release.get("running") not in (None, ZERO)


def at_work(host: str, seen: Seen) -> list[Wrong]:
    """Whoever works on services of this host now."""
    states = seen.collected.get("services") or ()
    return [one for state in states for one in _free(host, str(state["service"]), state)]


def _free(host: str, name: str, state: Mapping[str, Any]) -> list[Wrong]:
    """Nobody else works on it."""
    run, lock = state.get("run") or {}, state.get("lock") or {}
    if lock and lock.get("state") != "over":
        hint = f"{lock.get('hint') or f'opsctl status {name}'} --limit {host}"
        return [(f"{name} is {locked(lock)}", hint)]
    if run.get("active"):
        text = f"a run is at work on {name}: {run.get('run')}, phase {run.get('phase')}"
        return [(text, f"watch it with `opsctl status {name}`; it ends by itself")]
    return []


def _comes_back(host: str, name: str, state: Mapping[str, Any]) -> list[Wrong]:
    """What is stopped has to be what a start brings back: the confirmed release."""
    release, unit = state.get("release") or {}, state.get("unit")
    if release.get("running") == ZERO and not release.get("edited"):
        text = f"{unit} is of other hands: what stopped it could not start it again"
        how = f"take it over (opsctl import --host {host}), or stop it: systemctl stop {unit}"
        return [(text, how)]
    if release.get("edited") or release.get("running") != release.get("confirmed"):
        text = f"{name} runs what was never confirmed: a start would bring back another release"
        return [(text, f"opsctl deploy {name} --limit {host}")]
    return []


def _strangers(found: Mapping[str, Any]) -> list[Wrong]:
    """Whoever else uses a GPU would be ended by a reboot without a word. (Where packages are to be
    replaced, the program itself has refused.)"""
    told = ", ".join(f"{u['name']} (PID {u['pid']})" for u in found["users"][:4])
    return [(f"GPUs are in use by {told}", "end it first")] if told else []


def _sound(host: str, checks: Sequence[Mapping[str, Any]], gpus: int) -> list[Wrong]:
    """What doctor finds that would keep services from starting afterwards, and that no driver
    mends. Of a host whose driver is not well, or tells of no card, nobody knows what they are: the
    guard asks again before it starts anything."""
    wrong = [c for c in checks if c["status"] == FAIL and c["fault"] in FAULTS]
    wrong = [c for c in wrong if FAULTS[c["fault"]].blocks]
    mended = (*MENDED, "gpus") if not gpus or any(c["id"] == "driver" for c in wrong) else MENDED
    left = [c for c in wrong if c["id"] not in mended]
    if not left:
        return []
    details = "; ".join(c["detail"] for c in left)
    text = f"doctor finds what would keep services from starting again: {details}"
    return [(text, f"{left[0]['hint']}; all of it: opsctl doctor --limit {host}")]


def _told(
    states: Mapping[str, Mapping[str, Any]],
    running: Sequence[str],
    parked: Sequence[str],
    reboot: bool,
) -> list[str]:
    """Who is stopped and enabled is started by any reboot, ungated."""
    if not reboot:
        return []
    return [
        f"{name} is stopped and enabled: the reboot starts it, as every reboot does"
        for name, state in states.items()
        if state.get("enabled") == "enabled" and name not in running and name not in parked
    ]
