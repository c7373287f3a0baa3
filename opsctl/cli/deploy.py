"""`opsctl deploy`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opsctl.cli import fleet, planfiles
from opsctl.cli.changing import spanned, watch_limit
from opsctl.cli.frame import Change, Settings, worded
from opsctl.cli.plan import CANARY, OVERRIDE
from opsctl.cli.planning import describe, look_ahead, possible, steps_of
from opsctl.errors import NothingSelected, Refused, StalePlan

if TYPE_CHECKING:
    from opsctl.rollout.planned import Planned


def deploy(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVICE|FILE", help="All, if none is named; or what `plan --out` wrote."
        ),
    ] = None,
    override_forecast: Annotated[str | None, OVERRIDE] = None,
    canary: Annotated[str, CANARY] = "",
    max_age: Annotated[
        str, typer.Option("--max-age", metavar="TIME", help="How old a plan file may be.")
    ] = "24h",
) -> None:
    """Bring hosts to their descriptions.

    Checks descriptions, plans as `opsctl plan` does, asks, stages, then host by host restarts,
    gates, and confirms or restores. Expects hosts that are prepared: `ansible-playbook deploy.yml`
    also makes the user, installs the engine, checks driver and model, and then does the same as
    this command.
    """
    override = worded("--override-forecast", override_forecast)
    limit = watch_limit(change)
    longest = spanned("--max-age", max_age)
    if path := planfiles.meant(services):
        _nothing_else(path, settings, override, canary)
        _deploy_file(path, settings, change, limit, longest)
        return
    chosen, described = describe(settings, services)
    with fleet.opened(chosen) as reached:
        found = look_ahead(reached, described, override, canary)
        _carry_out(reached, found, settings, change, limit)


def _deploy_file(
    path: Path, settings: Settings, change: Change, limit: float | None, longest: float
) -> None:
    """The same question as when the plan was made must have the same answer."""
    from opsctl.rollout.planfile import asked_of

    plan = planfiles.read(path, longest)
    asked = asked_of(plan)
    try:
        chosen, described = describe(settings, asked.services, asked.limit)
    except NothingSelected as error:
        raise StalePlan(
            f"{path} does not hold any more: {error.message}", hint=error.hint
        ) from error
    with fleet.opened(chosen) as reached:
        found = look_ahead(reached, described, asked.override, asked.canary)
        if not found.wrong:
            planfiles.judge(path, plan, planfiles.of(found, asked))
        _carry_out(reached, found, settings, change, limit)


def _nothing_else(path: Path, settings: Settings, override: str, canary: str) -> None:
    """Raises Refused for options that would make another plan of it."""
    given = {
        "--limit": bool(settings.limit),
        "--override-forecast": bool(override),
        "--canary": bool(canary),
    }
    if wrong := [option for option, there in given.items() if there]:
        raise Refused(
            f"{wrong[0]} is decided by the plan in {path}",
            hint=f"opsctl plan {wrong[0]} … --out {path}, then opsctl deploy {path}",
        )


def _carry_out(
    reached: fleet.Fleet, found: Planned, settings: Settings, change: Change, limit: float | None
) -> None:
    from opsctl.cli.rolling import carry_out

    possible(found, settings, change)
    carry_out(
        reached,
        found.plan,
        settings,
        change,
        limit,
        steps=steps_of(found),
        total=found.total,
        releases={key: one.release for key, one in found.staged.items()},
    )
