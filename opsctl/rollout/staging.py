"""Puts releases on a host, each with its expectation: for the CLI and for Ansible alike.

Restarts nothing. The secrets travel through the connection's stdin only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opsctl.errors import DoesNotFit, OpsctlError, folded
from opsctl.forecast import remedies
from opsctl.forecast.expectation import Forecast
from opsctl.forecast.fit import NOT
from opsctl.forecast.solve import solve
from opsctl.forecast.values import Case, NoForecast
from opsctl.release.bundle import bundle
from opsctl.release.diff import verdict
from opsctl.release.model import Release
from opsctl.release.render import render
from opsctl.remote import onhost
from opsctl.remote.host import Host
from opsctl.rollout import together
from opsctl.rollout.model import SAME, Takeover
from opsctl.rollout.takeover import compare
from opsctl.spec.models import Service

OVERRIDES = "--override-forecast REASON"
OVERRIDES_ROLE = '-e service_override="REASON"'


@dataclass(frozen=True)
class Staged:
    """`changed`: whether files differ (or would, with check). `diff`: for people, secrets masked.
    `verdict`: "restart: …" or "no restart: …", against what runs there now. `warning`: a forecast
    that was overridden, and what threatens the release as it runs. `state`: what the service was
    before, as `collect` tells it. `forecast`: what the release will take, one thought a line.
    `problems`: what on the host would keep it from starting, `hints`: the commands that put it
    right. `unfit`: why the forecast forbids to start it; "" if it does not. `found`: the forecast
    itself, `facts`: what it was made of; `before`: the same of the release that stands there, None
    where that is not known; `takeover`: how a process of other hands that runs in its place
    compares with the release."""

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
    unfit: str = ""
    found: Forecast | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    before: Mapping[str, Any] | None = field(default=None, repr=False)
    takeover: Takeover | None = None
    hints: tuple[str, ...] = ()


def stage(
    host: Host,
    services: Mapping[str, Service],
    *,
    check: bool = False,
    override: str = "",
    by: Mapping[str, str] | None = None,
) -> list[Staged]:
    """Forecast all services of a host together, render, send; with `check` nothing stays there.

    `override`: the reason to stage what the forecast says does not fit; it is kept in the release,
    as "override" of its expectation. `by` ("run", "owner", "reason"): whose it is, for the history,
    where no lock tells it. With `check` what is wrong stands in the answer, for `refuse`;
    else it is raised before anything is sent. Raises SpecError, DoesNotFit, Unreachable, or the
    host's own OpsctlError.
    """
    drafted = draft(host, services, override=override)
    if not check:
        refuse(drafted)
    return [
        sent(one, send(host, one.release, check=check, after=list(services)[:place], by=by))
        for place, one in enumerate(drafted)
    ]


def draft(host: Host, services: Mapping[str, Service], *, override: str = "") -> list[Staged]:
    """The releases for this host, with forecast and verdict. Sends nothing; one round trip for
    each service."""
    # A bad description is refused before the host is asked anything.
    bare = {name: render(name, service) for name, service in services.items()}
    facts = {name: facts_of(host, name, release.manifest) for name, release in bare.items()}
    # A process's arguments and variables may hold keys: they are compared here, and go no further.
    taken = {name: compare(_process(told), bare[name]) for name, told in facts.items()}
    judged = together.judge(services, bare, facts, override, taken)
    before = {name: _before(host, name, told, bare[name]) for name, told in facts.items()}
    return [
        _drafted(host.name, name, services[name], judged[name], before[name]) for name in services
    ]


def foretold(host: Host, one: Staged, found: Forecast, facts: Mapping[str, Any]) -> Staged:
    """With the forecast of a release that is on the host already."""
    before = _before(host, one.service, facts, one.release)
    return replace(one, forecast=found.lines, found=found, facts=facts, before=before)


def _before(host: Host, name: str, facts: Mapping[str, Any], release: Release) -> Any:
    """The host's facts of the release that stands there: the same answer, if it loads the same
    files; else it is asked once more. None where there is none of ours, or its model has gone."""
    old = (facts.get("standing") or {}).get("manifest") or {}
    if "engine" not in old:
        return None
    if _loaded(old) == _loaded(release.manifest):
        return facts
    try:
        found = facts_of(host, name, old)
    except OpsctlError:  # it is only for the marks of advisories
        return None
    return found if (found.get("model") or {}).get("exists") else None


def _loaded(manifest: Mapping[str, Any]) -> tuple[Any, Any]:
    return manifest["model"]["path"], manifest["model"]["draft_path"]


def _drafted(
    host: str,
    name: str,
    service: Service,
    judged: together.Judged,
    before: Mapping[str, Any] | None,
) -> Staged:
    release = judged.release
    if judged.expect is not None:
        release = render(name, service, expect=judged.expect)
    return Staged(
        host,
        name,
        release.digest,
        False,
        "",
        _verdict(judged, release),
        release,
        judged.state,
        judged.warning,
        judged.found.lines,
        judged.problems,
        judged.unfit,
        judged.found,
        judged.facts,
        before,
        judged.takeover,
    )


def _process(facts: dict[str, Any]) -> Mapping[str, Any] | None:
    sealed = facts.pop("process", None)
    return onhost.unsealed(sealed) if sealed else None


def _verdict(judged: together.Judged, release: Release) -> str:
    if judged.takeover is not None:
        reasons = ", ".join(judged.takeover.differs)
        return f"restart: {reasons}" if reasons else f"no restart: {SAME}"
    return verdict(judged.state.get("manifest"), release.manifest)


def sent(one: Staged, answer: Mapping[str, Any]) -> Staged:
    """With what the host answered to `stage`."""
    told = tuple(str(problem) for problem in answer.get("problems") or ())
    return replace(
        one,
        changed=bool(answer.get("changed")),
        diff=str(answer.get("diff") or ""),
        problems=(*one.problems, *told),
        hints=tuple(str(hint) for hint in answer.get("hints") or ()),
        warning="; ".join([*filter(None, [one.warning]), *map(str, answer.get("warnings") or ())]),
    )


def facts_of(host: Host, name: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the forecast must know of the host and of the model's files there, and what stands
    there now: one round trip."""
    model = manifest["model"]
    more = ["--draft", model["draft_path"]] if model["draft_path"] else []
    if other := manifest.get("takes_over"):
        more += ["--takes-over", other]
    asked = ["--model", model["path"], *more, "--service", name, "--process"]
    return onhost.call(host, "facts", *asked, timeout=120)


def send(
    host: Host,
    release: Release,
    *,
    check: bool = False,
    after: Sequence[str] = (),
    by: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`stage` on the host: {"changed", "diff", "digest", "restart", "problems"}. `after`: services
    that are deployed there before this one; `by`: whose it is, where no lock is held."""
    arguments = ["--check"] if check else []
    document = {**bundle(release), "after": list(after), **({"by": dict(by)} if by else {})}
    return onhost.call(host, "stage", *arguments, stdin=document, timeout=120)


# ---------------------------------------------------------------- pure
def refuse(staged: Iterable[Staged], *, problems: bool = True) -> None:
    """Raises for what must not be started, with all of it, before the first host is touched:
    DoesNotFit if a forecast says so, OpsctlError for `problems` of hosts."""
    everything = list(staged)
    if unfit := [one for one in everything if one.unfit]:
        text = _told([(one, one.unfit) for one in unfit])
        log = (unfit[0].found.lines if unfit[0].found else ()) if len(unfit) == 1 else ()
        where = {"host": unfit[0].host, "step": unfit[0].service} if len(unfit) == 1 else {}
        raise DoesNotFit(text, hint=unfit_hint(unfit[0], OVERRIDES_ROLE), log=log, **where)
    if problems and (wrong := [one for one in everything if one.problems]):
        raise OpsctlError(
            f"nothing was touched: {_told([(one, ', '.join(one.problems)) for one in wrong])}",
            host=wrong[0].host,
            step="preflight",
            hint=mend_hint(wrong),
        )


def mend_hint(found: Sequence[Staged]) -> str:
    """The commands that doctor names for the problems; doctor itself tells all of it."""
    hosts = ",".join(dict.fromkeys(one.host for one in found))
    commands = dict.fromkeys(hint for one in found for hint in one.hints)
    look = f"opsctl doctor --limit {hosts}"
    return "; ".join([*commands, f"all of it: {look}" if commands else look])


def unfit_hint(one: Staged, override: str) -> str:
    """What finds a value that fits, where one flag decides; and how to go on all the same."""
    key = _decisive(one)
    first = (
        f"opsctl forecast {one.service} --fit {key}" if key else f"opsctl forecast {one.service}"
    )
    return f"{first}; or override it: {override}"


def _decisive(one: Staged) -> str:
    """The first flag with a value that fits; "" where none is known."""
    known = one.found.case if one.found else None
    if known is None:
        return ""
    return next((key for key in remedies.keys(known.flags) if _fits(known, key)), "")


def _fits(known: Case, key: str) -> bool:
    try:
        found = solve(known, key, known.min_available)
    except NoForecast:
        return False
    return found.result is not None and found.result.fit.verdict != NOT


def _told(found: Sequence[tuple[Staged, str]]) -> str:
    told = folded((one.host, (one.service, text)) for one, text in found)
    return "; ".join(f"{service} on {hosts}: {text}" for hosts, (service, text) in told)
