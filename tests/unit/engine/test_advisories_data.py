"""Every advisory speaks where it must and is silent where it must, at the edges of its versions
too. The cases stand beside the advisories."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from opsctl.engine.advisories import Advisory, Facts, advisories, page
from opsctl.engine.advisories.condition import named
from opsctl.engine.advisories.facts import GROUPS
from opsctl.engine.advisories.read import KEYS, SEVERITIES, Entry, entries
from opsctl.engine.advisories.versions import key
from opsctl.engine.catalogue import catalogue, versions
from opsctl.paths import share

RELEASES = versions()  # every release that there is a catalogue of, in order
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
    r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+"
    r"|sglang 0\.5\.\d+(\.post\d+)?: (METADATA|\S+\.py)"
)


@pytest.mark.parametrize("entry", ALL)
def test_asks_for_flags_that_its_versions_have(entry: Entry) -> None:
    inside = [release for release in RELEASES if any(r.holds(release) for r in entry.ranges)]
    known = {name for release in inside for name in catalogue(release).flags}
    assert named(entry.when).get("flags", set()) <= known
    for name in named(entry.when).get("env", ()):
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*|no_proxy|http_proxy", name), name


@pytest.mark.parametrize("entry", ALL)
def test_its_first_case_could_be_written(entry: Entry) -> None:
    """Flags of a case are flags of its version, with values that it takes."""
    first = entry.speaks[0]
    typed, problems = catalogue(first["version"]).check(first.get("flags", {}))
    assert not problems, problems
    assert typed == first.get("flags", {})


def test_the_page_is_as_the_data_makes_it() -> None:
    path = share() / page.PAGE
    assert path.read_text("utf-8") == page.page(), "run: python -m opsctl.engine.advisories.page"


def test_the_page_tells_every_entry_and_every_key() -> None:
    text = page.page()
    for entry in entries():
        assert f"### {entry.id}\n" in text
    assert set(page.KEYS) == set(KEYS)
    assert set(page.MEANING) == set(SEVERITIES)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (">=0.5.3,<=0.5.16", "0.5.3 to 0.5.16"),
        (">=0.5.19", "from 0.5.19 on"),
        ("<=0.5.4", "up to 0.5.4"),
        ("==0.5.2", "0.5.2 alone"),
    ],
)
def test_ranges_read_as_people_say_them(span: str, words: str) -> None:
    assert page.span(span) == words


def test_releases_are_in_order() -> None:
    assert sorted(RELEASES, key=key) == RELEASES
