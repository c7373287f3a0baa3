"""What a change will do, told before it is done: everything that `plan` and `deploy` show. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.engine.advisories import Advisory, advisories
from opsctl.engine.changes import Change, changes
from opsctl.errors import SpecError
from opsctl.forecast import advised, start
from opsctl.forecast.case import case as case_of
from opsctl.forecast.evaluate import evaluate
from opsctl.forecast.fit import UNKNOWN
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.values import Case, Figure, NoForecast
from opsctl.onhost.model import ENGAGED
from opsctl.release.diff import quiet_reasons, restart_reasons
from opsctl.rollout import beside, duration
from opsctl.rollout.beside import Row
from opsctl.rollout.model import Action
from opsctl.rollout.staging import Staged

NEW, STAYS = "new", "stays"
# Told already: by the diff (the new description is checked), or as advisories that begin and end.
_TOLD = ("gone", "renamed", "value", "begins", "ends", "choices")


@dataclass(frozen=True)
class Marked:
    """An advisory; `mark`: NEW by this change, STAYS, or "" where nothing is there to compare."""

    advisory: Advisory
    mark: str


@dataclass(frozen=True)
class Detail:
    """`why`: one line a changed flag. `takes`: seconds by step, None where not known; empty if the
    service is not started. `phases`: of the start. `cap`: seconds after which the guard gives a
    start up, `cap_of`: whose they are; `cap_warning`: it may come too soon. `versions`: of the
    engine, if they differ."""

    why: tuple[str, ...]
    rows: tuple[Row, ...]
    verdict: str
    ram: str
    gpu: str
    reasons: tuple[str, ...]
    unfit: str
    override: str
    notes: tuple[str, ...]
    advisories: tuple[Marked, ...]
    ended: tuple[Advisory, ...]
    versions: tuple[str, str] | None
    engine: tuple[Change, ...]
    engine_unknown: str
    takes: Mapping[str, Figure | None]
    phases: Mapping[str, Figure]
    cap: float
    cap_of: str
    cap_warning: str
    problems: tuple[str, ...]
    demanded: int  # bytes of RAM that must be left

    @property
    def total(self) -> Figure | None:
        """Seconds from the drain until it is confirmed; None where the start is not known."""
        return duration.together(self.takes.values())


def detail(one: Staged, action: Action | None) -> Detail:
    """`action`: what is done with it; None where nothing can be (`one` still tells why)."""
    new, old = one.release.manifest, _standing(one.state)
    said = outlook(one)
    marked, ended = _advisories(one, said, old)
    versions, engine, unknown = _engine(one, old)
    phases = said.start if said is not None else {}
    starts = action is not None and action.restarts
    fit = one.found.fit if one.found else None
    expect = new.get("expect") or {}
    active = one.state.get("state") in ENGAGED
    cap, cap_of = _cap(new)
    return Detail(
        why=_why(one, old),
        rows=beside.rows(said, one.facts),
        verdict=fit.verdict if fit else UNKNOWN,
        ram=fit.ram if fit else UNKNOWN,
        gpu=fit.gpu if fit else UNKNOWN,
        reasons=fit.reasons if fit else (),
        unfit=one.unfit,
        override=str(expect.get("override") or ""),
        notes=one.found.notes if one.found else (),
        advisories=marked,
        ended=ended,
        versions=versions,
        engine=engine,
        engine_unknown=unknown,
        takes=duration.takes(new, old, active, phases) if starts else {},
        phases=phases,
        cap=cap,
        cap_of=cap_of,
        cap_warning=start.too_short(phases, new["timing"]),
        problems=one.problems,
        demanded=int(new["memory"]["min_available"]),
    )


def outlook(one: Staged) -> Outlook | None:
    """The forecast with all that is told around it; None where there is none."""
    found, manifest = one.found, one.release.manifest
    if found is None or found.case is None or found.result is None:
        return None
    known = advised.facts(manifest, found.case, found.result, one.facts)
    return Outlook(
        one.service,
        str(manifest["model"]["path"]),
        found.case,
        found.result,
        start.seconds(found.case, found.result),
        None,
        tuple(advisories(known)),
        found.notes,
    )


def _cap(manifest: Mapping[str, Any]) -> tuple[float, str]:
    """Seconds, and whose they are: "description", "forecast", or "usual" where neither says any."""
    timing, expect = manifest["timing"], manifest.get("expect") or {}
    forecast = (expect.get("start") or {}).get("cap")
    if timing.get("cap_of") != "forecast":
        return float(timing["cap"]), "description"
    return (float(timing["cap"]), "usual") if forecast is None else (float(forecast), "forecast")


def _standing(state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The manifest of the release that stands there; None for none, or a unit of other hands."""
    manifest = state.get("manifest") or {}
    return manifest if "engine" in manifest else None


def _why(one: Staged, old: Mapping[str, Any] | None) -> tuple[str, ...]:
    new = one.release.manifest
    if old is None:
        return ()
    return tuple(restart_reasons(old, new) or quiet_reasons(old, new))


def _advisories(
    one: Staged, said: Outlook | None, old: Mapping[str, Any] | None
) -> tuple[tuple[Marked, ...], tuple[Advisory, ...]]:
    """Those of the new release, marked; and those that end with the old one, whichever of model,
    flags, variables, version and GPUs has changed. Where nothing is known of what the old one
    loads, nothing is compared."""
    manifest = one.release.manifest
    now = said.advisories if said is not None else tuple(advised.advice(manifest, one.facts))
    if old is None or one.before is None:
        return tuple(Marked(each, "") for each in now), ()
    known = _case(old, one.before)
    before = {each.id: each for each in advised.advice(old, one.before, known)}
    after, begun = {each.id for each in now}, None
    if said is None or known is None or not _figured(known):
        # What only one of them has figures for neither begins nor ends.
        begun = {each.id for each in advised.bare(manifest, one.facts)}
        alike = {each.id for each in advised.bare(old, one.before)}
        after |= begun | (set(before) - alike)
    marked = tuple(Marked(each, _mark(each.id, before, begun)) for each in now)
    return marked, tuple(each for name, each in before.items() if name not in after)


def _mark(name: str, before: Collection[str], begun: Collection[str] | None) -> str:
    """`begun`: what may be called new; None: everything."""
    if name in before:
        return STAYS
    return NEW if begun is None or name in begun else ""


def _figured(known: Case) -> bool:
    try:
        return evaluate(known).device.tokens is not None
    except NoForecast:
        return False


def _case(old: Mapping[str, Any], facts: Mapping[str, Any]) -> Case | None:
    """The standing release: its tokens are those that its start has logged, else those that were
    forecast."""
    ranks = ((facts.get("running") or {}).get("ranks") or {}).values()
    logged = {rank.get("kv_tokens") for rank in ranks} or {None}
    tokens = ((old.get("expect") or {}).get("kv") or {}).get("tokens")
    known = tokens if None in logged else min(logged)
    try:
        return case_of(old, facts, {} if known is None else {"kv_tokens": known})
    except NoForecast:
        return None


def _engine(
    one: Staged, old: Mapping[str, Any] | None
) -> tuple[tuple[str, str] | None, tuple[Change, ...], str]:
    """What another version of the engine does to this service, beyond what the diff shows."""
    new = one.release.manifest
    if old is None or old["engine"]["version"] == new["engine"]["version"]:
        return None, (), ""
    versions = (str(old["engine"]["version"]), str(new["engine"]["version"]))
    try:
        found = changes(*versions, old["flags"])
    except (SpecError, KeyError) as error:
        return versions, (), f"there is no catalogue of SGLang {versions[0]}: {error}"
    return versions, tuple(_left(found, new["flags"])), ""


def _left(found: list[Change], flags: Mapping[str, Any]) -> list[Change]:
    """Without what the new description has dealt with."""
    return [
        change
        for change in found
        if change.kind not in _TOLD and not (change.kind == "default" and change.flag in flags)
    ]
