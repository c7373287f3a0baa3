"""Whatever happens to a plan file on the way, it is refused in words or read as it was written."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.errors import Refused
from opsctl.rollout.planfile import KIND, SCHEMA, _hash, parsed

STOOD = {"running": None, "confirmed": None, "edited": False, "dropins": [], "unit": ""}
WHOLE = {
    "schema_version": SCHEMA,
    "kind": KIND,
    "opsctl": "0.1.0",
    "created": "2026-03-01T23:45:08Z",
    "by": "me@here",
    "asked": {"services": [], "limit": [], "canary": "", "override": "", "inventory": "i"},
    "descriptions": {"d": {"flags": {"hicache-ratio": 4.0}}},
    "steps": [{"host": "h1", "service": "kimi", "description": "d", "stood": STOOD}],
}
PLAN = {**WHOLE, "checksum": _hash(WHOLE)}
TEXT = json.dumps(PLAN, indent=1).encode()


def read(content: bytes) -> object:
    """The plan, or the words with which it is refused."""
    try:
        return parsed(content, "p.json")
    except Refused as refused:
        assert refused.message and refused.exit_code == 2
        return None


@given(st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    assert read(content) is None


@settings(max_examples=300)
@given(st.integers(0, len(TEXT) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_any_damage(place: int, put: bytes, taken: int) -> None:
    """What still is the same JSON (a blank more) may pass; nothing else does."""
    found = read(TEXT[:place] + put + TEXT[place + taken :])
    assert found is None or found == PLAN


PARTS = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.sampled_from(sorted(WHOLE)), part),
    max_leaves=8,
)


@given(PARTS)
def test_any_json_with_a_right_checksum(value: object) -> None:
    whole = {**WHOLE, **(value if isinstance(value, dict) else {"steps": value})}
    found = read(json.dumps({**whole, "checksum": _hash(whole)}).encode())
    assert found is None or found["kind"] == KIND  # type: ignore[index]
