"""Versions: which came first, how runs of them are said, and which are near."""

from __future__ import annotations

import pytest

from opsctl.engine.order import age, is_version, nearest, said

IN_ORDER = [
    *("0.4.10", "0.5.2rc0", "0.5.2rc2", "0.5.2", "0.5.9", "0.5.9+mine", "0.5.10rc0", "0.5.10"),
    *("0.5.10.post1", "0.5.10.post2", "0.5.11.dev3", "0.5.11", "0.6", "0.6.0", "0.6.1", "1.0"),
]


def test_age_is_the_order_of_release() -> None:
    assert sorted(sorted(IN_ORDER), key=age) == IN_ORDER


@pytest.mark.parametrize("version", [*IN_ORDER, "0.5.3.post3"])
def test_a_version(version: str) -> None:
    assert is_version(version)


@pytest.mark.parametrize("text", ["", "latest", "0", "v0.5.9", "0.5.9 ", "0.5.", "0.5.9/..", "a.b"])
def test_no_version(text: str) -> None:
    assert not is_version(text)


KNOWN = ["1.0", "1.1", "1.2", "1.3", "1.4"]
SAID = [
    ([], ""),
    (["1.0"], "1.0"),
    (["1.0", "1.1"], "1.0, 1.1"),
    (["1.0", "1.1", "1.2"], "1.0 to 1.2"),
    (["1.0", "1.2", "1.3", "1.4"], "1.0, 1.2 to 1.4"),
    (KNOWN, "1.0 to 1.4"),
]


@pytest.mark.parametrize(("some", "words"), SAID)
def test_runs_are_said_in_few_words(some: list[str], words: str) -> None:
    assert said(some, KNOWN) == words


NEAR = [
    ("0.9", ["1.0", "1.1", "1.2"]),
    ("1.2.post1", ["1.1", "1.2", "1.3"]),
    ("9", ["1.2", "1.3", "1.4"]),
    ("9.9", ["1.2", "1.3", "1.4"]),
    ("latest", ["1.2", "1.3", "1.4"]),
]


@pytest.mark.parametrize(("version", "near"), NEAR)
def test_the_nearest(version: str, near: list[str]) -> None:
    assert nearest(version, KNOWN) == near
