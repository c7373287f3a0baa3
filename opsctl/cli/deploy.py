"""`opsctl deploy`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from opsctl.cli import fleet
from opsctl.cli.changing import watch_limit
from opsctl.cli.console import talk
from opsctl.cli.frame import Change, Settings

if TYPE_CHECKING:
    from opsctl.inventory import Inventory, Selected
    from opsctl.remote.host import Host
    from opsctl.rollout import Staged


def deploy(
    settings: Settings,
    change: Change,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
    override_forecast: Annotated[
        str,
        typer.Option(
            "--override-forecast",
            metavar="REASON",
            help="Deploy even what the forecast says does not fit; the reason is kept.",
        ),
    ] = "",
) -> None:
    """Bring hosts to their descriptions.

    Checks descriptions, plans, asks, stages, then host by host restarts, gates, and confirms or
    restores. Expects hosts that are prepared: `ansible-playbook deploy.yml` also makes the user,
    installs the engine, checks driver and model, and then does the same as this command.
    """
    from opsctl import rollout
    from opsctl.cli.rolling import carry_out

    limit = watch_limit(change)
    if override_forecast:
        why = f"forecast overridden: {override_forecast}"
        change = replace(change, reason=f"{change.reason}; {why}" if change.reason else why)
    chosen, described = describe(settings, services)
    with fleet.opened(chosen) as reached:
        said = reached.each(
            lambda host: drafts(host, chosen.by_host[host.name], described, override_forecast)
        )
        fleet.raise_lost(said)
        staged = [one for found in said.values() if isinstance(found, list) for one in found]
        rollout.refuse(staged)
        for one in staged:
            if one.warning:
                talk(f"warning: {one.host} {one.service}: {one.warning}")
        keyed = {(one.host, one.service): one for one in staged}
        wanted = {
            key: rollout.Wanted(one.digest, one.release.manifest, one.changed)
            for key, one in keyed.items()
        }
        made = rollout.make("swap", chosen.by_host, reached.collect(), wanted)
        carry_out(
            reached,
            made,
            settings,
            change,
            limit,
            releases={key: one.release for key, one in keyed.items()},
            diffs={key: one.diff for key, one in keyed.items()},
            forecasts={key: one.forecast for key, one in keyed.items()},
        )


def describe(settings: Settings, services: list[str] | None) -> tuple[Selected, Inventory]:
    """The selection and its whole descriptions, read anew: secrets are in no cache."""
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    raw = inventory.document(path)
    chosen = inventory.select(inventory.book_of(path, raw), services or (), settings.hosts)
    return chosen, inventory.parse(path, raw, chosen.names)


def drafts(
    host: Host, services: tuple[str, ...], described: Inventory, override: str
) -> list[Staged]:
    """What each service's release would change on this host; sends nothing that stays."""
    from opsctl.rollout import stage

    known = described.hosts[host.name].services
    return [stage(host, name, known[name], check=True, override=override) for name in services]
