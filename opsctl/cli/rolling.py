"""restart, start, stop, rollback, deploy: plan, ask, do it host by host, show how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opsctl.cli import fleet
from opsctl.cli.changing import agreed, watch_limit
from opsctl.cli.console import data, show, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.cli.watching import watching
from opsctl.errors import Interrupted
from opsctl.views.plan import Step

if TYPE_CHECKING:
    from opsctl.release import Release
    from opsctl.rollout import Plan, Results
    from opsctl.rollout.model import Key, Op


def roll(op: Op, services: Sequence[str] | None, settings: Settings, change: Change) -> None:
    """A run that needs no description: the hosts know their own releases."""
    from opsctl import rollout

    limit = watch_limit(change)
    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        made = rollout.make(op, chosen.by_host, reached.collect())
        carry_out(reached, made, settings, change, limit)


def carry_out(
    reached: fleet.Fleet,
    plan: Plan,
    settings: Settings,
    change: Change,
    limit: float | None,
    *,
    releases: Mapping[Key, Release] | None = None,
    diffs: Mapping[Key, str] | None = None,
    forecasts: Mapping[Key, Sequence[str]] | None = None,
) -> None:
    """Show the plan, ask, run it, show the results. Raises what Results.error() holds."""
    from opsctl import rollout

    steps = steps_of(plan, diffs or {}, forecasts or {})
    if not agreed(steps, reached.chosen, settings, change):
        return
    with watching(settings) as watcher:
        results = rollout.run(
            reached.reached(),
            plan,
            reason=change.reason,
            releases=releases,
            observer=watcher.see,
            limits=rollout.Limits(watch=limit),
            detach=change.detach,
        )
    conclude(results, settings, detach=change.detach)


def conclude(results: Results, settings: Settings, *, detach: bool = False) -> None:
    """`detach`: not watching to the end is what was asked for, and so no error."""
    if settings.form is Output.text:
        from opsctl.views.results import table

        show(table(results), settings)
    else:
        data(results.as_json(), settings.form, each="results")
    error = results.error()
    if detach and isinstance(error, Interrupted):
        talk(f"started; the host finishes or restores by itself: {error.hint}")
        return
    if error is not None:
        raise error


def steps_of(
    plan: Plan, diffs: Mapping[Key, str], forecasts: Mapping[Key, Sequence[str]]
) -> list[Step]:
    return [
        Step(
            action.host,
            action.service,
            "" if action.kind == "none" else action.kind,
            action.reason,
            tuple(diffs.get(action.key, "").splitlines()),
            tuple(forecasts.get(action.key, ())),
        )
        for action in plan.actions
    ]
