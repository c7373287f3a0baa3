"""`opsctl config explain`: what is known of a flag, and what the described services make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsctl.errors import NothingSelected, Refused

if TYPE_CHECKING:
    from opsctl.cli.frame import Settings
    from opsctl.engine.explain.answer import Answer
    from opsctl.views.explain import Use


def asked(
    flag: str, version: str, services: Sequence[str], settings: Settings
) -> list[tuple[Answer, list[Use]]]:
    """One answer, or one for each version that the named services run.

    Raises Refused: an option that there is not; SpecError: no such flag, or none in the version;
    and what reading the inventory raises.
    """
    from opsctl.engine import catalogue
    from opsctl.engine.explain import nearest
    from opsctl.engine.explain.answer import answer

    if odd := [word for word in services if word.startswith("-")]:
        raise Refused(f"there is no option {odd[0]}", hint="opsctl config explain -h")
    if version:
        catalogue(version)  # a version that is not known, before a name that it cannot judge
    uses = list(_uses(nearest(flag), services, settings)) if services else []
    if not uses:
        return [(answer(nearest(flag, version), version), [])]
    versions = dict.fromkeys([version] if version else [use.version for use in uses])
    return [
        (answer(nearest(flag, one), one), [use for use in uses if version or use.version == one])
        for one in versions
    ]


def _uses(name: str, services: Sequence[str], settings: Settings) -> Iterator[Use]:
    """Once for each way in which hosts have it."""
    from dataclasses import replace

    found: list[Use] = []
    for service in services:
        for use in _described(name, service, settings):
            key = replace(use, hosts=())
            same = next((one for one in found if replace(one, hosts=()) == key), None)
            if same is not None:
                found[found.index(same)] = replace(same, hosts=(*same.hosts, *use.hosts))
            else:
                found.append(use)
    if not found:
        raise NothingSelected("no host has such a service", hint="opsctl hosts")
    yield from found


def _described(name: str, service: str, settings: Settings) -> Iterator[Use]:
    from opsctl import inventory, spec

    path = inventory.find(settings.inventory)
    raw = inventory.as_far(path)
    chosen = inventory.select(inventory.book_of(path, raw), [service], settings.hosts)
    inventory.must_be_read(raw, chosen.names, service, secrets=False)
    for host in chosen.names:
        one = spec.load(raw, host)[service]
        rows = [row for row in spec.show(raw, host) if row.service == service]
        yield _use(name, service, host, one, rows)


def _use(name: str, service: str, host: str, one: Any, rows: Sequence[Any]) -> Use:
    from opsctl.engine import rules
    from opsctl.views.explain import Use

    keys = _PLACES.get(name, f"flags.{name}")
    row = next((row for row in rows if row.key == keys), None)
    facts = rules.Facts(one.engine.version, one.flags, one.env, {"folder": str(one.model.path)})
    findings = tuple(f for f in rules.judge(facts).findings if name in (f.flag, *f.becomes))
    value, origin = (row.value, row.origin) if row is not None else (None, "")
    return Use(service, (host,), one.engine.version, value, origin, findings)


# Flags that a description writes elsewhere: canonical name → key.
_PLACES: Mapping[str, str] = {
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "host": "host",
    "port": "port",
    "api-key": "secrets.api-key",
    "admin-api-key": "secrets.admin-api-key",
}
