"""Every advisory speaks where it must and is silent where it must, at the edges of its versions
too. The cases stand beside the advisories."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from opsctl.engine.advisories import Advisory, Facts, advisories
from opsctl.engine.advisories.condition import named
from opsctl.engine.advisories.facts import GROUPS
from opsctl.engine.advisories.read import Entry, entries
from opsctl.engine.advisories.versions import key
from opsctl.engine.catalogue import catalogue, versions

# Every release from 0.5.2 to the newest that this toolkit knows, in order.
RELEASES = [
    "0.5.2", "0.5.3", "0.5.3.post1", "0.5.3.post2", "0.5.3.post3", "0.5.4", "0.5.4.post1",
    "0.5.4.post2", "0.5.4.post3", "0.5.5", "0.5.5.post1", "0.5.5.post2", "0.5.5.post3", "0.5.6",
    "0.5.6.post1", "0.5.6.post2", "0.5.7", "0.5.8", "0.5.8.post1", "0.5.9", "0.5.10",
    "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.14",
    "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21",
    "0.5.22", "0.5.23",
]  # fmt: skip
Case = dict[str, Any]


def merged(base: Case, change: Case) -> Case:
    """`change` over `base`, group by group; its `unset` takes away GROUP.NAME."""
    found = copy.deepcopy(base)
    for group, value in change.items():
        if group == "unset":
            for path in value:
                where, name = path.split(".", 1)
                del found[where][name]  # a KeyError here is a case that takes away nothing
        elif isinstance(value, dict):
            found[group] = found.get(group, {}) | value
        else:
            found[group] = value
    return found


def heard(case: Case, entry: Entry) -> Advisory | None:
    assert set(case) <= {"version", *GROUPS}, f"{entry.id}: a case has an unknown group"
    return next((a for a in advisories(Facts(**case)) if a.id == entry.id), None)


def speaking(entry: Entry) -> list[Case]:
    """The first case, and the others as changes of it."""
    first = entry.speaks[0]
    return [first, *(merged(first, change) for change in entry.speaks[1:])]


ALL = [pytest.param(entry, id=entry.id) for entry in entries()]


@pytest.mark.parametrize("entry", ALL)
def test_speaks_where_it_must(entry: Entry) -> None:
    for case in speaking(entry):
        assert heard(case, entry), case


@pytest.mark.parametrize("entry", ALL)
def test_is_silent_where_it_must(entry: Entry) -> None:
    for change in entry.silent:
        case = merged(entry.speaks[0], change)
        assert case != entry.speaks[0], f"{change} changes nothing"
        assert heard(case, entry) is None, case


@pytest.mark.parametrize("entry", ALL)
def test_holds_in_exactly_its_versions(entry: Entry) -> None:
    """Release by release: the case of one version speaks in all of its range, and in no other."""
    for release in RELEASES:
        inside = any(r.holds(release) for r in entry.ranges)
        case = entry.speaks[0] | {"version": release}
        assert (heard(case, entry) is not None) is inside, release


@pytest.mark.parametrize("entry", ALL)
def test_ends_at_releases_that_there_are(entry: Entry) -> None:
    """A range that ends at a version which was never released was not checked against any."""
    for one in entry.ranges:
        for operator, edge in one.bounds:
            assert edge in RELEASES, edge
            assert operator in (">=", "<=", "=="), "name the last release that has it, not the next"
        assert any(one.holds(release) for release in RELEASES), "no release has it"


@pytest.mark.parametrize("entry", ALL)
def test_reads_as_it_should(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.id)
    for words in (entry.symptom, entry.text, entry.advice, entry.evidence):
        assert words[0].isupper() or words[0] in "`0123456789" or words.split()[0] in LOWER, words
        assert words.endswith("."), words
    for one in entry.reference:
        assert REFERENCE.fullmatch(one), one


LOWER = {"opsctl", "reasoning_content"}
REFERENCE = re.compile(
    r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+|sglang 0\.5\.\d+(\.post\d+)?: \S+\.\w+"
)


def test_flags_that_conditions_name_are_flags_of_some_version() -> None:
    known = {name for version in versions() for name in catalogue(version).flags}
    for entry in entries():
        for name in named(entry.when).get("flags", ()):
            assert name in known, f"{entry.id}: no version has a flag {name}"
        for name in named(entry.when).get("env", ()):
            assert re.fullmatch(r"[A-Z][A-Z0-9_]*|no_proxy|https?_proxy", name), name


def test_releases_are_in_order() -> None:
    assert sorted(RELEASES, key=key) == RELEASES
