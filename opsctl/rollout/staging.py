"""Puts a release on a host, with its expectation: for the CLI and for Ansible alike.

Restarts nothing. The secrets travel through the connection's stdin only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opsctl import forecast
from opsctl.errors import DoesNotFit, OpsctlError
from opsctl.forecast.fit import NOT
from opsctl.release.bundle import bundle
from opsctl.release.diff import verdict
from opsctl.release.model import Release
from opsctl.release.render import render
from opsctl.remote import onhost
from opsctl.remote.host import Host
from opsctl.spec.models import Service


@dataclass(frozen=True)
class Staged:
    """`changed`: whether files differ (or would, with check). `diff`: for people, secrets masked.
    `verdict`: "restart: …" or "no restart: …", against what runs there now. `warning`: a forecast
    that was overridden. `state`: what the service was before, as `collect` tells it. `forecast`:
    what the release will take, one thought a line. `problems`: what on the host would keep it from
    starting."""

    host: str
    service: str
    digest: str
    changed: bool
    diff: str
    verdict: str
    release: Release
    state: Mapping[str, Any]
    warning: str = ""
    forecast: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def stage(
    host: Host, name: str, service: Service, *, check: bool = False, override: str = ""
) -> Staged:
    """Forecast, render, send. `override`: the reason to stage what the forecast says does not fit;
    it is kept in the release, as "override" of its expectation.

    Raises SpecError, DoesNotFit, Unreachable, or the host's own OpsctlError.
    """
    release, state, warning, lines = prepare(host, name, service, override=override)
    answer = send(host, release, check=check)
    return Staged(
        host.name,
        name,
        release.digest,
        bool(answer.get("changed")),
        str(answer.get("diff") or ""),
        verdict(state.get("manifest"), release.manifest),
        release,
        state,
        warning,
        lines,
        tuple(str(problem) for problem in answer.get("problems") or ()),
    )


def prepare(
    host: Host, name: str, service: Service, *, override: str = ""
) -> tuple[Release, Mapping[str, Any], str, tuple[str, ...]]:
    """The release for this host, what stands there now, a warning, and the forecast in words.
    Sends nothing."""
    bare = render(name, service)  # a bad description is refused before the host is asked anything
    facts = facts_of(host, name, bare.manifest)
    too_few = gpus_short(bare.manifest, facts)
    if too_few:
        raise OpsctlError(too_few, host=host.name, step=name, hint="opsctl hosts shows its GPUs")
    found = forecast.forecast(bare.manifest, facts, service.memory.calibration)
    problem = unfit(found)
    if problem and not override:
        raise DoesNotFit(
            problem,
            host=host.name,
            step=name,
            hint="lower hicache-ratio or mem-fraction-static, or override it with a reason",
            log=found.lines,
        )
    state: Mapping[str, Any] = facts.get("standing") or {}
    expect = settled(found.expect, state.get("manifest"), bare)
    if problem:
        expect = {**(expect or {}), "override": override}
    release = bare if expect is None else render(name, service, expect=expect)
    warning = f"{problem}; overridden: {override}" if problem else ""
    return release, state, warning, found.lines


def facts_of(host: Host, name: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the forecast must know of the host and of the model's files there, and what stands
    there now: one round trip."""
    model = manifest["model"]
    draft = ["--draft", model["draft_path"]] if model["draft_path"] else []
    return onhost.call(
        host, "facts", "--model", model["path"], *draft, "--service", name, timeout=120
    )


def send(host: Host, release: Release, *, check: bool = False) -> dict[str, Any]:
    """`stage` on the host: {"changed", "diff", "digest", "restart"}."""
    arguments = ["--check"] if check else []
    return onhost.call(host, "stage", *arguments, stdin=bundle(release), timeout=120)


# ---------------------------------------------------------------- pure
def refuse(staged: Iterable[Staged]) -> None:
    """Raises OpsctlError with the problems of all hosts, before the first of them is touched."""
    wrong = [one for one in staged if one.problems]
    if wrong:
        text = "; ".join(f"{o.service} on {o.host}: {', '.join(o.problems)}" for o in wrong)
        raise OpsctlError(
            f"nothing was touched: {text}",
            host=wrong[0].host,
            step="preflight",
            hint="ansible-playbook deploy.yml prepares hosts; opsctl hosts shows them",
        )


def settled(
    new: Mapping[str, Any] | None, standing: Mapping[str, Any] | None, release: Release
) -> Mapping[str, Any] | None:
    """The expectation to write: the standing one, as long as it says nothing wrong of the same
    release; else a second deployment of the same description would always find a change."""
    if standing is None or standing.get("digest") != release.digest:
        return new
    old: Mapping[str, Any] | None = standing.get("expect")
    return old if forecast.still_holds(old, new) else new


def gpus_short(manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
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
        return f"the flags make {ranks} ranks on this host, and it has {there} GPUs in order"
    return ""


def unfit(found: forecast.Forecast) -> str:
    """Why the release does not fit its host; "" if it does, or if nothing is known."""
    if found.fit is None or found.fit.verdict != NOT:
        return ""
    return f"the forecast says that it does not fit: {'; '.join(found.fit.reasons)}"
