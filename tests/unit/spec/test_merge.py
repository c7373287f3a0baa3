from __future__ import annotations

from typing import Any

import pytest

from opsctl.spec.merge import merge

TABLE: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"c": None}}, {"a": {"b": 1}}),
    ({"a": {"b": 1}}, {"a": None}, {}),
    ({"a": {"b": None, "c": 1}}, {}, {"a": {"c": 1}}),
    ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"a": 1}, {"a": {"b": 2, "c": None}}, {"a": {"b": 2}}),
    ({"flags": {"x": {"p": 1, "q": 2}}}, {"flags": {"x": {"q": 3}}}, {"flags": {"x": {"q": 3}}}),
    ({"flags": {"x": {"p": None}, "y": None}}, {}, {"flags": {"x": {"p": None}}}),
    ({"flags": {"x": 1}}, {"flags": {"x": None, "y": 2}}, {"flags": {"y": 2}}),
    ({}, {"flags": {"x": {"p": None}, "y": None}}, {"flags": {"x": {"p": None}}}),
]


@pytest.mark.parametrize(("base", "changes", "expected"), TABLE)
def test_merge(base: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge(base, changes) == expected
