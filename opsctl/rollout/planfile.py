"""The plan file: what was planned, for which hosts, on what grounds; and whether that still holds.

Both are functions over documents. docs/architecture.md has the form. No secret stands in it: of a
description it holds the manifest, where a secret is 16 digits that change with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import opsctl
from opsctl.errors import Refused
from opsctl.forecast.fit import FITS, NOT, TIGHT, UNKNOWN
from opsctl.onhost.model import ENGAGED
from opsctl.release.diff import quiet_reasons, restart_reasons
from opsctl.rollout.model import Key
from opsctl.rollout.planned import Planned

KIND, SCHEMA = "opsctl plan", 1
LARGEST = 16 << 20  # bytes; fifty hosts with three services each take less than half a MiB
AHEAD = 300  # seconds that the clock of another machine may be ahead
_WORSE = (FITS, TIGHT, UNKNOWN, NOT)
_ONCE = ("expect", "digest")  # of a manifest: what the description does not say

HOSTS = "\0"  # stands for the hosts that a line is true of
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """With what `plan` was asked, so that the same can be asked again."""

    services: tuple[str, ...]
    limit: tuple[str, ...]
    canary: str
    override: str
    inventory: str


def document(found: Planned, asked: Asked, *, created: float, by: str) -> dict[str, Any]:
    """The plan, JSON-ready. Raises nothing; whoever writes it makes sure that it can be done."""
    releases: dict[str, Any] = {}
    steps = []
    for action in found.plan.actions:
        one, told = found.staged[action.key], found.details[action.key]
        said = {k: v for k, v in one.release.manifest.items() if k not in _ONCE}
        mark = _hash(said)
        releases[mark] = said
        steps.append(
            {
                "host": action.host,
                "service": action.service,
                "action": action.kind,
                "reason": action.reason,
                "digest": one.digest,
                "engine": one.release.manifest["engine"]["version"],
                "description": mark,
                "stood": _stood(one.state, one.diff),
                "verdict": told.verdict,
                "ram_verdict": told.ram,
                "gpu_verdict": told.gpu,
                "override": told.override or None,
            }
        )
    whole = {
        "schema_version": SCHEMA,
        "kind": KIND,
        "opsctl": opsctl.__version__,
        "created": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "by": by,
        "asked": {
            "services": list(asked.services),
            "limit": list(asked.limit),
            "canary": asked.canary,
            "override": asked.override,
            "inventory": asked.inventory,
        },
        "fingerprint": _hash([[s["host"], s["service"], s["description"]] for s in steps]),
        "descriptions": releases,
        "steps": steps,
    }
    return {**whole, "checksum": _hash(whole)}


def _stood(state: Mapping[str, Any], diff: str) -> dict[str, Any]:
    """What stood and ran there. `unit`: a mark of how the unit differs, since an edited unit may be
    edited again. `run`: the last one, since what was deployed and rolled back leaves all
    else as it was."""
    known, manifest = state.get("release") or {}, state.get("manifest") or {}
    run = state.get("run") or {}
    return {
        "running": known.get("running"),
        "confirmed": known.get("confirmed"),
        "edited": bool(known.get("edited")),
        "dropins": sorted(state.get("dropins") or ()),
        "active": state.get("state") in ENGAGED,
        "engine": (manifest.get("engine") or {}).get("version"),
        "unit": _hash(diff),
        "run": {key: run.get(key) for key in ("run", "op", "owner", "outcome")} if run else None,
    }


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# -- reading --------------------------------------------------------------------------------------


def parsed(content: bytes, name: str) -> dict[str, Any]:
    """A plan file's document. Raises Refused for what is none, of another schema, or damaged."""
    no_plan = Refused(f"{name} is no plan file", hint="opsctl plan --out FILE writes one")
    try:
        value = json.loads(content)
    except ValueError:
        if content.lstrip().startswith(b"{") and KIND.encode() in content[:4096]:
            raise _damaged(name) from None
        raise no_plan from None
    if not isinstance(value, dict) or value.get("kind") != KIND:
        raise no_plan
    if value.get("schema_version") != SCHEMA:
        raise Refused(
            f"{name} is a plan of schema {value.get('schema_version')}, and opsctl "
            f"{opsctl.__version__} reads schema {SCHEMA}",
            hint="plan again with this opsctl",
        )
    if value.get("checksum") != _hash({k: v for k, v in value.items() if k != "checksum"}):
        raise _damaged(name)
    try:
        asked_of(value)
        age(value, 0)
        for step in value["steps"]:
            _ = (
                step["stood"]["unit"],
                step["stood"]["run"],
                value["descriptions"][step["description"]],
            )
    except (KeyError, TypeError, ValueError):
        raise _damaged(name) from None
    return value


def _damaged(name: str) -> Refused:
    return Refused(
        f"{name} is damaged: it was cut off or changed after it was written",
        hint="opsctl plan --out FILE writes a new one",
    )


def asked_of(plan: Document) -> Asked:
    asked = plan["asked"]
    return Asked(
        tuple(map(str, asked["services"])),
        tuple(map(str, asked["limit"])),
        str(asked["canary"]),
        str(asked["override"]),
        str(asked["inventory"]),
    )


def age(plan: Document, now: float) -> float:
    """Seconds since it was written; below zero if that is in the future."""
    written = datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return now - written.timestamp()


# -- whether it still holds -----------------------------------------------------------------------


def stale(then: Document, now: Document) -> list[str]:
    """What has changed since the plan was made, for people; [] if it still holds. `now`: the same
    question asked again. What has become better is no reason to refuse. What is the same on
    several hosts is told once."""
    found: dict[str, list[str]] = {}
    before, after = _keyed(then), _keyed(now)
    for key in before:
        if key not in after:
            found.setdefault(f"{key[1]} on {HOSTS}: is not selected any more", []).append(key[0])
    for key in after:
        if key not in before:
            found.setdefault(f"{key[1]} on {HOSTS}: was not in the plan", []).append(key[0])
    moved = bool(found)
    for key in before:
        if key in after:
            for line in _differs(key[1], (before[key], then), (after[key], now)):
                found.setdefault(line, []).append(key[0])
    lines = [line.replace(HOSTS, ", ".join(hosts)) for line, hosts in found.items()]
    if not moved and list(before) != list(after):
        order = " → ".join(
            ", ".join(f"{service} on {host}" for host, service in keys) for keys in (before, after)
        )
        lines.append(f"the order: {order}")
    if then["opsctl"] != now["opsctl"]:
        lines.append(f"opsctl {now['opsctl']} is at work, and {then['opsctl']} made the plan")
    return lines


def _keyed(plan: Document) -> dict[Key, Mapping[str, Any]]:
    return {(step["host"], step["service"]): step for step in plan["steps"]}


def _differs(
    service: str, then: tuple[Mapping[str, Any], Document], now: tuple[Mapping[str, Any], Document]
) -> Iterator[str]:
    (old, plan), (new, again) = then, now
    moved = list(_moved(service, old["stood"], new["stood"]))
    moved = moved or list(_went_on(service, old["stood"], new["stood"]))
    if old["description"] != new["description"]:
        was = {**plan["descriptions"][old["description"]], "digest": old["digest"]}
        is_ = {**again["descriptions"][new["description"]], "digest": new["digest"]}
        yield f"description of {service} on {HOSTS}: {'; '.join(_described(was, is_))}"
    elif old["digest"] != new["digest"]:
        words = f"{_short(old['digest'])} → {_short(new['digest'])}"
        yield f"{service} on {HOSTS}: {words}, of the same description"
    elif not moved and old["action"] != new["action"]:
        words = f"{old['action']} → {new['action']} ({new['reason']})"
        yield f"{service} on {HOSTS}: what is to be done: {words}"
    yield from (f"on {HOSTS} {words}" for words in moved)
    yield from _turned(service, old, new)


def _turned(service: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """A verdict that has become worse."""
    for name, which in (
        ("ram_verdict", " of RAM"),
        ("gpu_verdict", " of GPU memory"),
        ("verdict", ""),
    ):
        was, is_ = old[name], new[name]
        if is_ != was and _WORSE.index(is_) > _WORSE.index(was):
            yield f"{service} on {HOSTS}: the forecast{which}: {was} → {is_}"
            return


def _described(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[str]:
    blank = {"expect": None}
    restarting = restart_reasons({**old, **blank}, {**new, **blank})
    quiet = quiet_reasons({**old, **blank}, {**new, **blank})
    return list(dict.fromkeys([*restarting, *quiet]))


def _moved(service: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What happened on the host meanwhile."""
    if old["running"] != new["running"]:
        is_, was = _short(new["running"]), _short(old["running"])
        yield f"{service} has {is_} in place instead of {was}"
    if old["edited"] != new["edited"]:
        yield f"the unit of {service} {'was edited' if new['edited'] else 'is not edited any more'}"
    elif old["unit"] != new["unit"] and old["running"] == new["running"] and new["edited"]:
        yield f"the unit of {service} was edited again"
    if old["dropins"] != new["dropins"]:
        was, is_ = (", ".join(names) or "none" for names in (old["dropins"], new["dropins"]))
        yield f"drop-ins of {service}: {was} → {is_}"
    if old["active"] != new["active"]:
        yield f"{service} {'runs' if new['active'] else 'does not run any more'}"
    if old["confirmed"] != new["confirmed"] and old["running"] == new["running"]:
        is_, was = _short(new["confirmed"]), _short(old["confirmed"])
        yield f"the confirmed release of {service} is {is_} instead of {was}"


def _went_on(service: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What came and went: all stands as it stood, and somebody may have had a reason for it."""
    run = new["run"] or {}
    if run and run["run"] != (old["run"] or {}).get("run"):
        how = str(run["outcome"] or "at work").replace("_", " ")
        yield f"{service} has been through {run['op']} of {run['owner']} ({how}; run {run['run']})"


def _short(digest: object) -> str:
    if digest == "0":
        return "a unit of other hands"
    return f"release {str(digest)[:12]}" if digest else "nothing"
