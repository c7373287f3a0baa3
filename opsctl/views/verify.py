"""`opsctl verify`: each service's gates, what is known to go wrong with it, and the four lines that
close a deployment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError
from opsctl.onhost.model import Check, RankFacts, StartFacts
from opsctl.onhost.report import lines
from opsctl.remote.sanitise import text as harmless
from opsctl.views import advisories, checks
from opsctl.views.document import Said, overridden

if TYPE_CHECKING:
    from rich.console import RenderableType


def report(said: Mapping[str, Said]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for name, answer in said.items():
        if isinstance(answer, OpsctlError):
            parts.append(Text(f"{name}: {answer.message}", "red"))
            continue
        for service in answer["services"]:
            parts.append(Text(f"{name} {service['service']}", "bold"))
            parts.append(checks.table(service["checks"]))
            if reason := overridden(service):
                words = f"its forecast did not fit, overridden: {harmless(reason)}"
                parts.append(Text(words, "bold yellow"))
            known = service.get("advisories") or ()
            parts += [Text(text, style) for text, style in advisories.lines(known)]
            if "unadvised" in service:
                parts.append(Text(f"no advisories: {harmless(service['unadvised'])}", "dim"))
            parts += [Text(line) for line in closing(answer, service)]
    return Group(*parts)


def closing(answer: Mapping[str, Any], service: Mapping[str, Any]) -> list[str]:
    """The four lines; none for a unit that opsctl did not write, of which it knows too little."""
    manifest = service.get("manifest")
    if not manifest:
        return ["not deployed by opsctl: there is no release to compare with"]
    checks = [Check(c["id"], c["status"], c["detail"]) for c in service["checks"]]
    return lines(manifest, start_facts(service.get("start") or {}), answer["memory"], checks)


def start_facts(said: Mapping[str, Any]) -> StartFacts:
    """The host's JSON as the ground floor's own value; a newer host's extra keys are left out."""
    ranks = {name: RankFacts(**_known(RankFacts, r)) for name, r in said.get("ranks", {}).items()}
    return StartFacts(**{**_known(StartFacts, said), "ranks": ranks})


def _known(kind: type[Any], said: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(kind)}
    return {key: value for key, value in said.items() if key in names}
