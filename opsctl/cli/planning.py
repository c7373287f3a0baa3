"""What `plan` and `deploy` both do: read the descriptions anew, ask every host at once what its
releases would change, and put all of it together. Nothing that is done here stays on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opsctl.cli.console import data, show
from opsctl.cli.fleet import Fleet
from opsctl.cli.frame import Output, Settings
from opsctl.views.plan import Step, document, drawing

if TYPE_CHECKING:
    from opsctl.inventory import Inventory, Selected
    from opsctl.remote.host import Host
    from opsctl.rollout import Staged
    from opsctl.rollout.planned import Planned

# Seconds for two reads a service on each host: the model's files may have to be read.
LONGEST = 600.0


def describe(
    settings: Settings, services: Sequence[str] | None, limit: Sequence[str] | None = None
) -> tuple[Selected, Inventory]:
    """The selection and its whole descriptions, read anew: secrets are in no cache."""
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    raw = inventory.document(path)
    hosts = settings.hosts if limit is None else limit
    chosen = inventory.select(inventory.book_of(path, raw), services or (), hosts)
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
    """In the order of the rollout; what cannot be planned comes last, with the reason."""
    steps = [
        Step(
            action.host,
            action.service,
            "" if action.kind == "none" else action.kind,
            action.reason,
            tuple(found.staged[action.key].diff.splitlines()),
            found.staged[action.key].forecast,
            found.details[action.key],
            later=action.later,
        )
        for action in found.plan.actions
    ]
    return steps + [
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


def show_plan(found: Planned, settings: Settings) -> list[Step]:
    """The plan as the result of a command; its steps."""
    steps = steps_of(found)
    if settings.form is Output.text:
        show(drawing(steps, found.total), settings)
    else:
        data(document(steps, found.total), settings.form, each="steps")
    return steps
