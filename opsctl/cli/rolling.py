"""restart, start, stop, rollback, deploy: plan, ask, do it host by host, show how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsctl.cli import fleet, planning
from opsctl.cli.changing import agreed, watch_limit
from opsctl.cli.console import data, show, talk
from opsctl.cli.frame import Change, Output, Settings
from opsctl.cli.watching import watching
from opsctl.errors import Interrupted, OpsctlError
from opsctl.views.plan import Step

if TYPE_CHECKING:
    from opsctl.forecast.values import Figure
    from opsctl.release import Release
    from opsctl.rollout import Plan, Results
    from opsctl.rollout.model import Action, Key, Op
    from opsctl.rollout.planned import Planned


def roll(op: Op, services: Sequence[str] | None, settings: Settings, change: Change) -> None:
    """A run that needs no description: the hosts know their own releases, and what comes of them is
    shown as `plan` shows it."""
    from opsctl import rollout

    limit = watch_limit(change)
    chosen = fleet.choose(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.collect()
        made = rollout.make(op, chosen.by_host, said)
        found = _foreseen(reached, made, said)
        planning.possible(found, settings, change)
        steps = planning.steps_of(found)
        carry_out(reached, made, settings, change, limit, steps=steps, total=found.total)


def _foreseen(reached: fleet.Fleet, plan: Plan, said: Mapping[str, Any]) -> Planned:
    """What comes of it. Where that cannot be told it is done all the same: who rolls back has a
    reason, and the guard looks again before it touches anything."""
    from opsctl.rollout import again

    actions: dict[str, list[Action]] = {}
    for action in plan.actions:
        if action.restarts and action.kind != "stop":
            actions.setdefault(action.host, []).append(action)
    found = reached.each(
        lambda host: again.foreseen(host, actions[host.name], said[host.name]),
        among=list(actions),
        timeout=planning.LONGEST,
    )
    for host, told in found.items():
        if isinstance(told, OpsctlError):
            talk(f"{host}: what will come of it is not known: {told.message}")
    return again.planned(plan, found)


def carry_out(
    reached: fleet.Fleet,
    plan: Plan,
    settings: Settings,
    change: Change,
    limit: float | None,
    *,
    steps: Sequence[Step],
    total: Figure | None = None,
    releases: Mapping[Key, Release] | None = None,
) -> None:
    """Show the plan, ask, run it, show the results. Raises what Results.error() holds.

    `steps`: what is shown of the plan; `total`: seconds of all of it.
    """
    from opsctl import rollout

    if not agreed(steps, reached.chosen, settings, change, total=total):
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
