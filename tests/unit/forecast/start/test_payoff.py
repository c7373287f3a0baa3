"""Load-back against recompute."""

from __future__ import annotations

import pytest

from opsctl.forecast import payoff
from opsctl.forecast.values import MEASURED, Figure

KIMI = 70_272  # bytes a token and rank


def speed(value: int, least: int | None = None, most: int | None = None) -> Figure:
    return Figure(value, least or value, most or value, MEASURED, "measured")


def test_the_reference_link_reaches_what_was_measured() -> None:
    found = payoff.bandwidth((5, 16))
    assert found.value == pytest.approx(25e9, rel=0.01)  # measured: about 25 GB/s a GPU
    assert (found.least or 0) < found.value < (found.most or 0) < 63e9
    assert payoff.bandwidth((4, 16)).value == pytest.approx(found.value / 2, rel=0.01)
    assert "not known" in payoff.bandwidth(None).source


def test_what_is_assumed_and_what_was_measured_stand_in_clauses_of_their_own() -> None:
    source = payoff.bandwidth((5, 16)).source
    assert "the link can carry 63 GB/s" in source
    assert "25 GB/s, are assumed here: the share was measured on another deployment" in source
    assert "of which 0.4" not in source


# generation and lanes, prefill tokens a second → tokens from which on the tier pays
CROSSES = [
    ((5, 16), 9_300, 20),
    ((5, 16), 100_000, 278),
    ((5, 16), 400_000, None),  # computing is quicker than any loading
    ((3, 4), 9_300, 32),
    ((5, 16), 100, payoff.THRESHOLD),  # the engine loads no shorter prefix
]


@pytest.mark.parametrize(("link", "prefill", "tokens"), CROSSES)
def test_where_loading_meets_computing(
    link: tuple[int, int], prefill: int, tokens: int | None
) -> None:
    found = payoff.of(KIMI, payoff.bandwidth(link), speed(prefill))
    assert (found.tokens.value if found.tokens else None) == tokens
    if tokens is None:
        assert found.gain is not None and found.gain < 1
        assert "slower" in found.lacking and found.rows()[-1][1] == "never"
        return
    assert found.tokens is not None and found.gain is not None and found.gain > 1
    # At the length that is told, both take as long: latency + n / load = n / compute.
    if tokens > payoff.THRESHOLD:
        load = payoff.LATENCY[0] + tokens / found.load.value
        assert load <= tokens / prefill
        assert payoff.LATENCY[0] + (tokens - 1) / found.load.value >= (tokens - 1) / prefill
    assert (found.tokens.least or 0) <= tokens
    assert found.tokens.most is None or found.tokens.most >= tokens


def test_without_a_prefill_speed_it_says_what_to_measure() -> None:
    found = payoff.of(KIMI, payoff.bandwidth((5, 16)), None)
    assert found.tokens is None and found.gain is None
    assert "Prefill batch" in found.lacking
    assert found.rows()[1] == ("recompute", "not known", found.lacking)
    assert found.as_json()["load_tokens_per_second"] == found.load.value > 350_000


def test_a_band_that_may_never_cross_has_no_upper_end() -> None:
    found = payoff.of(KIMI, payoff.bandwidth((3, 4)), speed(9_300, 9_000, 30_000))
    assert found.tokens is not None and found.tokens.most is None
    assert "or never" in found.rows()[-1][1]
