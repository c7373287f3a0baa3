"""`opsctl config show|validate|explain|paths`: descriptions as they count, what is wrong with them,
and what a flag means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completing
from opsctl.cli.console import data, show, talk, write
from opsctl.cli.frame import Output, Settings, framed
from opsctl.errors import Problem, SpecError

if TYPE_CHECKING:
    from opsctl.inventory import Selected
    from opsctl.spec.models import Service

app = typer.Typer(
    help="Show and check descriptions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("show")
@framed
def show_config(
    settings: Settings,
    services: Annotated[
        list[str] | None, typer.Argument(metavar="SERVICE", help="All, if none is named.")
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="With the file and line of each value.")
    ] = False,
) -> None:
    """Show descriptions as they count.

    Templates, groups and overrides resolved, defaults added, flags by their canonical names,
    secrets masked. Touches no host.
    """
    from opsctl import spec

    raw, chosen = _read(settings, services)
    rows = [
        value
        for entry, names in chosen.entries
        for value in spec.show(raw, entry.name)
        if value.service in names
    ]
    if settings.form is not Output.text:
        data({"schema_version": 1, "values": [vars_of(row) for row in rows]}, settings.form,
             each="values")  # fmt: skip
        return
    from opsctl.views.config import table

    show(table(rows, origin=origin), settings)


@app.command("paths")
@framed
def paths(settings: Settings) -> None:
    """Show where the shipped playbooks, roles and the example inventory are."""
    from opsctl.paths import share

    names = ("playbooks", "roles", "templates", "inventory", "tests/postdeploy")
    found = {name: str(share() / name) for name in names}
    if settings.form is Output.text:
        write("".join(f"{name:17} {path}\n" for name, path in found.items()))
    else:
        data({"schema_version": 1, "paths": found}, settings.form)


@app.command("validate")
@framed
def validate(settings: Settings) -> None:
    """Check descriptions; touches no host.

    Tells every problem of every host, with file, service, key, value and what is allowed. Ends
    with 2 if there is any.
    """
    from opsctl import spec

    raw, chosen = _read(settings, None, whole=False)
    problems = _problems(raw, chosen.names)
    notes = spec.notes(raw, chosen.names)
    if settings.form is not Output.text:
        found = [{**vars_of(p), "grave": p in problems} for p in (*problems, *notes)]
        data({"schema_version": 1, "ok": not problems, "problems": found}, settings.form,
             each="problems")  # fmt: skip
    for note in notes:
        talk(f"note: {note}")
    if problems:
        raise SpecError(problems)
    if settings.form is Output.text:
        count = sum(len(names) for _, names in chosen.entries)
        of = "1 service is" if count == 1 else f"{count} services are"
        hosts = "1 host" if len(chosen.names) == 1 else f"{len(chosen.names)} hosts"
        write(f"{of} right on {hosts}\n")


# A flag is typed as it is read: with its dashes.
@app.command("explain", context_settings={"ignore_unknown_options": True})
@framed
def explain(
    flag: Annotated[
        str,
        typer.Argument(
            metavar="FLAG",
            help="A flag of the engine, such as hicache-ratio.",
            autocompletion=completing.flags,
        ),
    ],
    settings: Settings,
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVICE", help="Services of the inventory: what they make of it."),
    ] = None,
    version: Annotated[
        str,
        typer.Option(
            "--version",
            metavar="VERSION",
            help="As this release has it; the newest, if none is named.",
            autocompletion=completing.versions,
        ),
    ] = "",
) -> None:
    """Explain a flag of the engine.

    What it does, what it takes, its default and choices by release, what it costs in memory, what
    it needs or excludes, and what is known to go wrong with it.
    """
    from opsctl.cli.explaining import asked

    found = asked(flag, version, services or (), settings)
    if settings.form is not Output.text:
        rows = [{**one.as_json(), "services": [vars_of(use) for use in uses]}
                for one, uses in found]  # fmt: skip
        data({"schema_version": 1, "flags": rows}, settings.form, each="flags")
        return
    from opsctl.views.explain import page

    for one, uses in found:
        show(page(one, uses), settings)


def _problems(raw: dict[str, Any], hosts: Sequence[str]) -> list[Problem]:
    """What cannot be read, and what is wrong with the rest: nothing is said of a value that is
    not there to be judged."""
    from opsctl import inventory, spec
    from opsctl.ansible import fitting

    unread = [one for one in inventory.unread(raw) if one.host in hosts]
    silent = {one.key.partition(".")[2] for one in unread if one.key.startswith("sglang_")}
    right = _right(raw, hosts)
    unwritable = spec.together([*_unwritable(right)])
    judged = (*spec.validate(raw, hosts), *unwritable)
    rest = [one for one in judged if f"{one.service}.{one.key}" not in silent]
    known = {(one.host, one.key) for one in unread}
    roles = [one for one in inventory.of_roles(raw)
             if one.host in hosts and (one.host, one.key) not in known]  # fmt: skip
    unfit = fitting.problems(inventory.asks_of_roles(raw), right)
    return [*spec.together(unread), *spec.together(roles), *spec.together(unfit), *rest]


def _right(raw: dict[str, Any], hosts: Sequence[str]) -> dict[str, dict[str, Service]]:
    """The services of hosts whose descriptions are right: of the others it is told already."""
    from opsctl import spec

    found = {}
    for host in hosts:
        try:
            found[host] = spec.load(raw, host)
        except SpecError:
            continue
    return found


def _unwritable(hosts: Mapping[str, Mapping[str, Service]]) -> Iterator[Problem]:
    """What only the writing of a release refuses."""
    from opsctl import release

    for host, services in hosts.items():
        for name, service in services.items():
            yield from (replace(one, host=host) for one in release.problems(name, service))


def _read(
    settings: Settings, services: list[str] | None, *, whole: bool = True
) -> tuple[dict[str, Any], Selected]:
    from opsctl import inventory

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    if whole:
        inventory.must_be_read(raw)
    book = inventory.book_of(path, raw)
    return raw, inventory.select(book, services or (), settings.hosts)


def vars_of(value: Any) -> dict[str, Any]:
    """A dataclass as JSON-ready values; whatever JSON does not know becomes its text."""
    from dataclasses import asdict

    plain: dict[str, Any] = json.loads(json.dumps(asdict(value), default=str))
    return plain
