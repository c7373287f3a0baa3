"""Labels as the launchers of all releases make them (their code is named in ranks.py)."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.engine import catalogue
from opsctl.engine.ranks import ranks
from opsctl.onhost.wording import parse_prefix

TABLE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["TP0"]),
    ({"tp-size": 2}, ["TP0", "TP1"]),
    ({"pp-size": 2}, ["PP0", "PP1"]),
    ({"tp-size": 2, "pp-size": 2}, ["PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1"]),
    ({"dp-size": 2}, ["DP0", "DP1"]),
    ({"dp-size": 2, "tp-size": 2}, ["DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1"]),
    (
        {"dp-size": 2, "tp-size": 4, "enable-dp-attention": True},
        ["DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"],
    ),
    ({"dp-size": 1, "tp-size": 2, "enable-dp-attention": True}, ["TP0", "TP1"]),
    ({"tp-size": 2, "attn-dp-size": 2}, ["DP0 TP0", "DP1 TP1"]),
    ({"tp-size": 2, "ep-size": 2}, ["TP0", "TP1"]),
    ({"tp-size": 4, "nnodes": 2}, ["TP0", "TP1"]),
    ({"tp-size": 4, "nnodes": 2, "node-rank": 1}, ["TP2", "TP3"]),
    ({"tp-size": 2, "pp-size": 2, "nnodes": 2, "node-rank": 1}, ["PP1 TP0", "PP1 TP1"]),
    ({"tp-size": 4, "pp-size": 2, "nnodes": 4, "node-rank": 3}, ["PP1 TP2", "PP1 TP3"]),
    (
        {"tp-size": 4, "dp-size": 4, "enable-dp-attention": True, "nnodes": 2, "node-rank": 1},
        ["DP2 TP2", "DP3 TP3"],
    ),
]


@pytest.mark.parametrize(("flags", "expected"), TABLE)
def test_ranks(flags: dict[str, Any], expected: list[str]) -> None:
    assert ranks(flags) == expected


def test_the_reference_deployment() -> None:
    assert catalogue("0.5.9").ranks({"tp-size": 8}) == [f"TP{n}" for n in range(8)]


REFUSED = [
    ({"tp-size": 0}, "tp-size is 0"),
    ({"nnodes": 2, "node-rank": 2, "tp-size": 2}, "0 to 1"),
    ({"tp-size": 3, "dp-size": 2, "enable-dp-attention": True}, "multiple"),
    ({"tp-size": 3, "nnodes": 2}, "spread"),
    ({"tp-size": 1, "pp-size": 3, "nnodes": 2}, "spread"),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED)
def test_sizes_that_do_not_divide(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ranks(flags)


PREFIXES = [
    # What a scheduler puts before its lines, by release, for one rank of tp 4, pp 2, dp 2, ep 4.
    ("0.5.2", "[2025-10-01 10:00:00 DP1 TP3 EP3 PP0] x"),
    ("0.5.5", "[2025-11-01 10:00:00 DP1 TP3 EP3 PP0] x"),
    ("0.5.5.post1", "[2025-11-09 10:00:00 DP1 PP0 TP3 EP3] x"),
    ("0.5.9", "[2026-03-01 10:00:00 DP1 PP0 ATTN_CP0 TP3 EP3] x"),
    ("0.5.16", "[2026-07-01 10:00:00 DP1 PP0 ATTN_CP0 MOE_DP0 TP3 EP3] x"),
    ("0.5.23", "[2026-11-01 10:00:00 DP1 PP0 TP3 EP3] x"),
]


@pytest.mark.parametrize(("version", "line"), PREFIXES)
def test_every_releases_prefix_names_one_of_the_expected_ranks(version: str, line: str) -> None:
    sizes = {"tp-size": 4, "pp-size": 2, "dp-size": 2, "ep-size": 4}
    flags, problems = catalogue(version).check(sizes)
    assert problems == []
    expected = catalogue(version).ranks(flags)
    assert len(expected) == 16
    assert parse_prefix(line).rank in expected
