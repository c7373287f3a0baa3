"""What `plan` and `deploy` both do: read the descriptions anew, ask every host at once what its
releases would change, and put all of it together. Nothing that is done here stays on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsctl.cli.console import data, explain, show, talk
from opsctl.cli.fleet import Fleet
from opsctl.cli.frame import Change, Output, Settings
from opsctl.views.plan import FAILED, Step, document, drawing

if TYPE_CHECKING:
    from opsctl.inventory import Inventory, Selected
    from opsctl.remote.host import Host
    from opsctl.rollout import Staged
    from opsctl.rollout.model import Action
    from opsctl.rollout.planned import Planned

# Seconds for two reads a service on each host: the model's files may have to be read.
LONGEST = 600.0


def describe(
    settings: Settings, services: Sequence[str] | None, limit: Sequence[str] | None = None
) -> tuple[Selected, Inventory]:
    """The selection and its whole descriptions, read anew: secrets are in no cache."""
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    hosts = settings.hosts if limit is None else limit
    chosen = inventory.select(inventory.book_of(path, raw), services or (), hosts)
    chosen.must_be_read()
    return chosen, inventory.parse(path, raw, chosen.names)


def look_ahead(reached: Fleet, described: Inventory, override: str, canary: str = "") -> Planned:
    """The plan of all chosen hosts; what is wrong with some keeps nobody from seeing the others."""
    from opsctl.rollout.planned import planned

    chosen = reached.chosen
    said = reached.each(
        lambda host: drafts(host, chosen.by_host[host.name], described, override), timeout=LONGEST
    )
    return planned(chosen.by_host, said, canary=canary or None)


def drafts(
    host: Host, services: tuple[str, ...], described: Inventory, override: str
) -> list[Staged]:
    """What each service's release would change on this host; sends nothing that stays."""
    from opsctl.rollout import stage

    known = described.hosts[host.name].services
    return stage(host, {name: known[name] for name in services}, check=True, override=override)


def steps_of(found: Planned) -> list[Step]:
    """In the order of the rollout; what cannot be planned comes last, with the reason. What is only
    known to be done is told so far."""
    return [_step(found, action) for action in found.plan.actions] + [
        Step(
            host,
            service,
            "",
            error.message,
            detail=found.details.get((host, service)),
            blocked=True,
        )
        for (host, service), error in found.wrong.items()
    ]


def _step(found: Planned, action: Action) -> Step:
    one, kind = found.staged.get(action.key), "" if action.kind == "none" else action.kind
    if one is None:
        return Step(action.host, action.service, kind, action.reason)
    known = found.details.get(action.key)
    what, failed, when = action.reason.partition(FAILED)
    why = "; ".join(known.why) if known is not None else ""
    if why and why not in what:
        what = f"{what}: {why}"
    return Step(
        action.host,
        action.service,
        kind,
        what + failed + when,
        tuple(one.diff.splitlines()),
        one.forecast,
        known,
        later=action.later,
    )


def possible(found: Planned, settings: Settings, change: Change) -> None:
    """Raises what stands in the way, once all of the plan has been shown."""
    warn(found)
    error = found.error()
    if error is None:
        return
    if change.dry_run:
        show_plan(found, settings)
    else:
        explain(drawing(steps_of(found), found.total), settings)
    raise error


def warn(found: Planned) -> None:
    """Tells what hinders nothing, and threatens what comes of it."""
    for one in found.staged.values():
        if one.warning:
            talk(f"warning: {one.host} {one.service}: {one.warning}")


def show_plan(found: Planned, settings: Settings) -> list[Step]:
    """The plan as the result of a command; its steps."""
    steps = steps_of(found)
    if settings.form is Output.text:
        show(drawing(steps, found.total), settings)
    else:
        data(document(steps, found.total), settings.form, each="steps")
    return steps
