"""Which services on which hosts a command means. An empty selection is an error, always."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from opsctl.errors import NothingSelected, Problem, Refused, SpecError
from opsctl.inventory.model import Book, BookEntry

# A range of an inventory's own file, h[1:5], or a slice of a group, gpu[0:2].
_RANGE = re.compile(r"\[(-?\w*):(-?\w*)(?::\d+)?\]")


@dataclass(frozen=True)
class Selected:
    """Hosts in the inventory's order, each with its selected services (maybe none)."""

    entries: tuple[tuple[BookEntry, tuple[str, ...]], ...]
    fleet_wide: bool  # not every host was named
    unread: tuple[Problem, ...] = ()
    """What could not be read of the hosts that were meant, whatever runs there."""

    @property
    def hosts(self) -> tuple[BookEntry, ...]:
        return tuple(entry for entry, _ in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry, _ in self.entries)

    def services_of(self, host: str) -> tuple[str, ...]:
        return self.by_host[host]

    def must_be_read(self) -> None:
        """Raises SpecError with all of it; other hosts' gaps keep nobody from these."""
        if self.unread:
            from opsctl.spec import together  # not above: pydantic would slow every verb

            raise SpecError(together(self.unread))

    @property
    def by_host(self) -> dict[str, tuple[str, ...]]:
        return {entry.name: names for entry, names in self.entries}


def select(
    book: Book,
    services: Sequence[str] = (),
    limit: Sequence[str] = (),
    *,
    bare: bool = False,
    undescribed: bool = False,
) -> Selected:
    """`limit` names hosts, groups or globs of either; `!PART` leaves them out, `&PART` all others.
    `bare` also takes hosts that no service is described for. `undescribed`: where every host is
    named, its services may be any; only the host can tell.

    Raises NothingSelected, which names what there is; Refused for a range such as h[1:5].
    """
    hosts = _limited(book, limit)
    known = sorted({s for entry in book.hosts.values() for s in entry.services})
    anything = undescribed and bool(limit) and set(limit) <= set(book.hosts)
    for service in services:
        if service not in known and not (anything and _may_be_one(service)):
            error = _unknown("service", service, known, book)
            if undescribed:
                error.hint = (
                    "if it still stands on a host, name the host: "
                    f"opsctl remove {service} --limit HOST"
                )
            raise error
    entries = []
    for entry in hosts:
        if anything and services:
            wanted = tuple(dict.fromkeys(services))
        else:
            wanted = tuple(s for s in entry.services if not services or s in services)
        if wanted or (bare and not services):
            entries.append((entry, wanted))
    gaps = tuple(problem for entry in hosts for problem in entry.unread)
    if not entries:
        Selected((), False, gaps).must_be_read()  # a gap may be what hides the services
        raise _nothing(book, services, [h.name for h in hosts])
    named = {entry.name for entry, _ in entries} <= set(limit)
    return Selected(tuple(entries), fleet_wide=not named, unread=gaps)


def _may_be_one(service: str) -> bool:
    from opsctl.spec.kinds import SERVICE_NAME  # not above: pydantic would slow every verb

    return SERVICE_NAME.fullmatch(service) is not None


def _limited(book: Book, limit: Sequence[str]) -> list[BookEntry]:
    """Hosts by Ansible's own rules for --limit: what is named, less what is not also in each
    `&PART`, less each `!PART`; all hosts, if nothing is named but such parts."""
    plain = [part for part in limit if part[0] not in "&!"]
    chosen = set().union(*(_matched(book, part) for part in plain)) if plain else set(book.hosts)
    for part in limit:
        if part[0] == "&":
            chosen &= _matched(book, part[1:])
    for part in limit:
        if part[0] == "!":
            chosen -= _matched(book, part[1:])
    if limit and not chosen:
        raise NothingSelected(
            f"nothing selected: --limit {','.join(limit)} leaves no host of {book.path}; "
            f"there is: {', '.join(book.hosts) or 'none'}"
        )
    return [entry for entry in book.hosts.values() if entry.name in chosen]


def _matched(book: Book, part: str) -> set[str]:
    """Names of the hosts of one host, group or glob. Unlike Ansible, which ignores a part that
    matches nothing, this raises NothingSelected: behind a `!` a typing error would take a host
    along that was to be left alone."""
    _no_range(book, part)
    groups: dict[str, set[str]] = {"all": set(book.hosts)}
    for entry in book.hosts.values():
        for group in entry.groups:
            groups.setdefault(group, set()).add(entry.name)
    found = {name for name in book.hosts if fnmatchcase(name, part)}
    found |= {name for group, names in groups.items() if fnmatchcase(group, part) for name in names}
    if not found:
        raise _unknown("host or group", part, [*book.hosts, *sorted(set(groups) - {"all"})], book)
    return found


def _no_range(book: Book, part: str) -> None:
    """Raises Refused for `h[1:5]`: as a glob it would be one of the characters 1, : and 5, and
    silently mean other hosts than were meant."""
    found = _RANGE.search(part)
    if found is None:
        return
    named: list[str] = []
    if found[1].isdecimal() and found[2].isdecimal():
        whole = re.compile(
            re.escape(part[: found.start()]) + r"(\d+)" + re.escape(part[found.end() :])
        )
        for name in book.hosts:
            match = whole.fullmatch(name)
            if match and int(found[1]) <= int(match[1]) <= int(found[2]):
                named.append(name)
    instead = f"--limit {','.join(named)}" if 0 < len(named) <= 20 else "--limit h1,h2"
    raise Refused(
        f"--limit {part}: a range of hosts is not understood here",
        hint=f"name the hosts ({instead}) or a group of them",
    )


def _unknown(kind: str, name: str, known: Iterable[str], book: Book) -> NothingSelected:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    did = f"; did you mean {near[0]}?" if near else ""
    there = ", ".join(names) or "none"
    return NothingSelected(f"there is no {kind} {name} in {book.path}{did}; there is: {there}")


def _nothing(book: Book, services: Sequence[str], hosts: Sequence[str]) -> NothingSelected:
    what = f"service {', '.join(services)}" if services else "any service"
    where = ", ".join(hosts) or "no host at all"
    there = ", ".join(
        f"{entry.name} ({', '.join(entry.services) or 'no service'})"
        for entry in book.hosts.values()
    )
    return NothingSelected(
        f"nothing selected: {what} on {where} is not described in {book.path}"
        + (f"; there is: {there}" if there else "")
    )
