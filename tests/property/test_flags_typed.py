"""Whatever is written as flags: an answer, never an exception; and typing twice is typing once."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.engine import catalogue, versions

KNOWN = {v: sorted(n for f in catalogue(v).flags.values() for n in f.names) for v in versions()}

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(versions()), st.data())
def test_any_flags(version: str, data: st.DataObject) -> None:
    names = st.sampled_from(KNOWN[version]) | scalars
    flags: dict[Any, Any] = data.draw(st.dictionaries(names, values, max_size=4))
    known = catalogue(version)
    typed, problems = known.check(flags)
    assert len(typed) + len(problems) <= len(flags)
    again, none = known.check(typed)
    assert (again, none) == (typed, [])
    argv = known.argv(typed)
    assert argv == known.argv(again)
    assert all("\0" not in a and a.encode() for a in argv)
    assert all(str(problem) for problem in problems)
