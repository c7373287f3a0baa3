"""What recorded starts fill into an open expectation, and what they must not touch."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.forecast.standing import still_holds
from opsctl.onhost.learned import RECORDED, taught

OPEN = {"tokens": None, "min": None, "max": None, "bytes_per_token": 70272}


def manifest(kv: dict[str, Any] | None) -> dict[str, Any]:
    expect = None if kv is None else {"kv": kv, "host_pools": []}
    return {"gpu_key": "a", "ranks": ["TP0", "TP1"], "expect": expect}


def start(tokens: tuple[int | None, int | None], key: str = "a", at: int = 1) -> dict[str, Any]:
    ranks = {f"TP{n}": {"kv_tokens": t} for n, t in enumerate(tokens)}
    return {"gpu_key": key, "last_event": at, "ranks": ranks}


def test_an_open_expectation_is_filled_from_the_newest_start_of_the_same_settings() -> None:
    starts = [start((100_000, 100_000)), start((159_277, 159_277), at=2), start((7, 7), "b", 3)]
    kv = taught(manifest(OPEN), starts)["expect"]["kv"]
    assert kv["tokens"] == 159_277 and kv["source"] == RECORDED
    assert kv["min"] == 159_277 - (64 << 20) // 70272 and kv["max"] == 159_277 + 954


@pytest.mark.parametrize(
    ("kv", "starts"),
    [
        ({**OPEN, "tokens": 5, "min": 5, "max": 5}, [start((9, 9))]),  # forecast: it stays
        (OPEN, [start((9, 8))]),  # ranks that disagree teach nothing
        (OPEN, [start((9, None))]),
        (OPEN, [start((9, 9), "b")]),  # other GPU settings
        (OPEN, []),
        (None, [start((9, 9))]),  # a model that is not forecast
    ],
)
def test_all_else_stays_as_it_is(kv: dict[str, Any] | None, starts: list[dict[str, Any]]) -> None:
    assert taught(manifest(kv), starts) == manifest(kv)


def test_what_the_host_knows_by_itself_is_no_change_of_the_manifest() -> None:
    old = {"kv": OPEN, "host_pools": []}
    known = {**OPEN, "tokens": 9, "min": 8, "max": 10}
    assert still_holds(old, {"kv": {**known, "source": RECORDED}, "host_pools": []})
    assert not still_holds(old, {"kv": {**known, "source": "the owner"}, "host_pools": []})
