"""`opsctl verify`: each service's gates, what is known to go wrong with it, and the four lines that
close a deployment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError
from opsctl.onhost.model import Check, RankFacts, StartFacts
from opsctl.onhost.report import lines
from opsctl.remote.sanitise import text as harmless
from opsctl.views import advisories, checks
from opsctl.views.document import Said, overridden
from opsctl.views.fold import Hanging
from opsctl.views.once import Line, Once

if TYPE_CHECKING:
    from rich.console import RenderableType


def report(said: Mapping[str, Said]) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    once = Once()
    for name, answer in said.items():
        if isinstance(answer, OpsctlError):
            parts.append(Hanging(f"{name}: {answer.message}", "red"))
            continue
        for service in answer["services"]:
            parts.append(Hanging(f"{name} {service['service']}", "bold"))
            parts.append(checks.table(service["checks"]))
            known = once.lines(f"{name} {service['service']}", _known(service))
            parts += [Hanging(text, style) for text, style in known]
            parts += [Hanging(line) for line in closing(answer, service)]
    return Group(*parts)


def _known(service: Mapping[str, Any]) -> Iterator[tuple[str, list[Line]]]:
    """What is known of a release, by name; see Once."""
    if reason := overridden(service):
        words = f"its forecast did not fit, overridden: {harmless(reason)}"
        yield "", [(words, "bold yellow")]
    yield "advisories", list(advisories.lines(service.get("advisories") or ()))
    if "unadvised" in service:
        yield "", [(f"no advisories: {harmless(service['unadvised'])}", "dim")]


def closing(answer: Mapping[str, Any], service: Mapping[str, Any]) -> list[str]:
    """The four lines; none of what does not run. Of a unit that is no release of ours the figures
    that its ranks have logged, and nothing of the model, which was not asked. What fails is told
    once more at the end."""
    manifest = service.get("manifest")
    if service.get("state") in ("inactive", "failed", "absent"):
        said = [f"the unit is {service['state']}: nothing is served, and nothing is pinned"]
        return said + [checks.line(c) for c in service["checks"] if c["status"] == "fail"]
    facts = start_facts(service.get("start") or {})
    if not manifest or "flags" not in manifest:  # release 0 has a manifest with nothing in it
        edited = (service.get("release") or {}).get("edited")
        whose = "opsctl's unit was edited by hand" if edited else "not deployed by opsctl"
        told = lines(_seen(facts), facts, answer["memory"], ())[:-1] if facts.ranks else []
        return [f"{whose}: there is no release to compare with", *told]
    found = [Check(c["id"], c["status"], c["detail"]) for c in service["checks"]]
    return lines(manifest, facts, answer["memory"], found)


def _seen(facts: StartFacts) -> dict[str, Any]:
    """In place of a manifest, what the ranks themselves have told."""
    tier = any(rank.host_pools for rank in facts.ranks.values())
    return {
        "ranks": list(facts.ranks),
        "flags": {"enable-hierarchical-cache": tier},
        "engine": {"version": facts.engine_version},
        "model": {"path": ""},
    }


def start_facts(said: Mapping[str, Any]) -> StartFacts:
    """The host's JSON as the ground floor's own value; a newer host's extra keys are left out."""
    ranks = {name: RankFacts(**_of(RankFacts, r)) for name, r in said.get("ranks", {}).items()}
    return StartFacts(**{**_of(StartFacts, said), "ranks": ranks})


def _of(kind: type[Any], said: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(kind)}
    return {key: value for key, value in said.items() if key in names}
