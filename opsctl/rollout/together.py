"""All services of one host, forecast together: what is deployed in one go must fit in one go. Pure.

Each service is judged at its own start and at the end: services before it in the order run their
new releases by then, and what they give back counts; those after it hold what they hold, and may
take more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl import forecast
from opsctl.forecast import owned
from opsctl.forecast.expectation import Forecast
from opsctl.forecast.fit import NOT
from opsctl.forecast.host.memory import process
from opsctl.forecast.hostside import STARTING
from opsctl.onhost import gates
from opsctl.onhost.model import FAIL
from opsctl.release.facts import widened
from opsctl.release.model import Release
from opsctl.release.render import render
from opsctl.rollout.model import Takeover, Wanted
from opsctl.rollout.plan import decide
from opsctl.spec.models import Service

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """One service. `release`: its digest is final, `expect`: what it is to be rendered with.
    The rest as in Staged."""

    release: Release
    expect: Mapping[str, Any] | None
    state: Mapping[str, Any]
    facts: Facts
    found: Forecast
    unfit: str
    warning: str
    problems: tuple[str, ...]
    takeover: Takeover | None


def judge(
    services: Mapping[str, Service],
    bare: Mapping[str, Release],
    facts: Mapping[str, Facts],
    override: str = "",
    taken: Mapping[str, Takeover | None] | None = None,
) -> dict[str, Judged]:
    """By service, in the order in which they are touched. An engine that sizes its host pools by
    what it finds, finds what the services before it have left, and nothing is taken yet by those
    after it: so the sizes are forecast in that order, and then each is judged beside all others."""
    found: dict[str, Forecast] = {}
    for name in services:
        told = {**facts[name], "others": others(name, facts[name], found, tuple(services))}
        found[name] = _forecast(services[name], bare[name], told)
    if len(services) > 1:
        facts = {
            name: {**facts[name], "others": others(name, facts[name], found, tuple(services))}
            for name in services
        }
        found = {name: _forecast(services[name], bare[name], facts[name]) for name in services}
    processes = taken or {}
    return {
        name: _judged(one, bare[name], facts[name], found[name], override, processes.get(name))
        for name, one in services.items()
    }


def _forecast(service: Service, release: Release, facts: Facts) -> Forecast:
    manifest = release.manifest
    figures, told = owned.of_description(release.service, service, service.shared, manifest)
    size = None if service.model.size is None else int(service.model.size)
    return forecast.forecast(manifest, facts, figures, told, size)


def others(
    name: str, facts: Facts, planned: Mapping[str, Forecast], order: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The host's answer about the services beside `name`; of those that are deployed with it, what
    their new releases will take, as far as they are `planned`. `order`: all that are deployed."""
    told = {one["service"]: dict(one) for one in facts.get("others") or ()}
    for other in order:
        if other not in planned and told.get(other, {}).get("state") not in STARTING:
            told.pop(other, None)  # it takes nothing before this one has started
    for place, other in enumerate(order):
        found = planned.get(other)
        if other == name or found is None or found.case is None or found.result is None:
            continue
        total = found.result.host_total
        told[other] = {
            "service": other,
            "state": "active",
            "enabled": "enabled",
            "standing": True,
            "expected": total,
            "ranks": len(found.case.ranks),
            "process": process(found.case).value,
            "held": (told.get(other) or {}).get("held") or 0,
            "pinned": (told.get(other) or {}).get("pinned"),
            "settled": total is not None and place < order.index(name),
            "after": place > order.index(name),
        }
    return list(told.values())


def _judged(
    service: Service,
    release: Release,
    facts: Facts,
    found: Forecast,
    override: str,
    taken: Takeover | None,
) -> Judged:
    name = release.service
    state: Mapping[str, Any] = facts.get("standing") or {"service": name, "state": "absent"}
    stands: Mapping[str, Any] = state.get("manifest") or {}
    wide: Mapping[str, Any] | None = found.expect
    if stands.get("digest") != release.digest:  # a wider start limit alone restarts nothing
        wide = widened(service, found.expect, stands.get("expect"))
        release = release if wide == found.expect else render(name, service, expect=wide)
    problem, starts = unfit(found), _starts(name, state, release, taken)
    reason = override or _recorded(state, release)
    told = None if found.expect is None else wide  # a limit alone tells nothing of the release
    expect = settled(told, state.get("manifest"), release) or wide
    warning = ""
    if problem and reason:
        expect = {**(expect or {}), "override": reason}
        warning = f"{problem}; overridden: {reason}"
    elif problem and not starts:
        warning = f"{problem}; it runs already, and is not restarted"
    short = gpus_short(release.manifest, facts)
    lacks = memory_now(name, state, release, facts, taken)
    return Judged(
        release,
        expect,
        state,
        facts,
        found,
        problem if problem and not reason and starts else "",
        warning,
        tuple(filter(None, (short, lacks))),
        taken,
    )


def memory_now(
    name: str,
    state: Mapping[str, Any],
    release: Release,
    facts: Facts,
    taken: Takeover | None,
) -> str:
    """Why a process that would be taken over as it runs cannot pass the gate `memory`: it holds
    all its memory by now, so what is available now is what the gate will find. "" if it can."""
    wanted = Wanted(release.digest, release.manifest, takeover=taken)
    if taken is None or decide("swap", "", name, state, wanted).kind != "takeover":
        return ""
    found = gates.memory(facts["memory"], release.manifest["memory"], None, ())
    return f"now, with the engine running: {found.detail}" if found.status == FAIL else ""


def _starts(name: str, state: Mapping[str, Any], release: Release, taken: Takeover | None) -> bool:
    """Whether this deployment starts the service (anew): one that runs on as it is may be in a
    host that is tight by now, and nobody is helped by refusing to leave it alone."""
    wanted = Wanted(release.digest, release.manifest, takeover=taken)
    return decide("swap", "", name, state, wanted).restarts


def _recorded(state: Mapping[str, Any], release: Release) -> str:
    """The reason with which this very release was overridden here before."""
    manifest = state.get("manifest") or {}
    if manifest.get("digest") != release.digest:
        return ""
    return str((manifest.get("expect") or {}).get("override") or "")


def settled(
    new: Mapping[str, Any] | None, standing: Mapping[str, Any] | None, release: Release
) -> Mapping[str, Any] | None:
    """The expectation to write: the standing one, as long as it says nothing wrong of the same
    release; else a second deployment of the same description would always find a change, and one
    whose model's files cannot be read now would lose what is known of what runs."""
    if standing is None or standing.get("digest") != release.digest:
        return new
    old: Mapping[str, Any] | None = standing.get("expect")
    return old if forecast.still_holds(old, new) else new


def gpus_short(manifest: Mapping[str, Any], facts: Facts) -> str:
    """Why the host's GPUs cannot hold the ranks; "" if they can, or if it shows none: then nothing
    is known here, and the role `cuda` or the start itself will tell."""
    cards = [gpu["index"] for gpu in facts.get("gpus") or () if gpu.get("state") == "ok"]
    if not cards or manifest["flags"].get("device") == "cpu":
        return ""
    asked = manifest.get("gpus")
    lost = [index for index in asked or () if index not in cards]
    if lost:
        return f"GPU {', '.join(map(str, lost))} of the description is not there, or not in order"
    ranks, there = len(manifest["ranks"]), len(asked or cards)
    if ranks > there:
        cards_there = f"{there} GPU{'s' if there != 1 else ''}"
        return f"the flags make {ranks} ranks on this host, and it has {cards_there} in order"
    return ""


def unfit(found: Forecast) -> str:
    """Why the release does not fit its host; "" if it does, or if nothing is known."""
    if found.fit is None or found.fit.verdict != NOT:
        return ""
    return f"the forecast says that it does not fit: {'; '.join(found.fit.reasons)}"
