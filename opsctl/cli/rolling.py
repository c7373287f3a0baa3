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
    from opsctl.forecast.values import Figure
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
    steps: Sequence[Step] | None = None,
    total: Figure | None = None,
    releases: Mapping[Key, Release] | None = None,
) -> None:
    """Show the plan, ask, run it, show the results. Raises what Results.error() holds.

    `steps`: what is shown, where more is known than the plan says; `total`: seconds of all of it.
    """
    from opsctl import rollout

    shown = steps_of(plan) if steps is None else steps
    if not agreed(shown, reached.chosen, settings, change, total=total):
        return
    with watching(settings) as watcher:
        results = rollout.run(
            reached.reached(),
            plan,
            reason=change.why,
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


def steps_of(plan: Plan) -> list[Step]:
    return [
        Step(a.host, a.service, "" if a.kind == "none" else a.kind, a.reason) for a in plan.actions
    ]
