"""The largest whole number that fits, also where small ones do not, or the rule has holes."""

from collections.abc import Callable

import pytest

from opsctl.forecast.search import largest


@pytest.mark.parametrize(
    ("holds", "least", "most", "edge"),
    [
        (lambda n: n <= 37, 0, 1000, 37),
        (lambda n: n <= 37, 37, 37, 37),
        (lambda n: n <= 37, 38, 1000, None),
        (lambda n: True, 1, 1000, 1000),
        (lambda n: False, 1, 1000, None),
        (lambda n: n <= 999_999, 0, 10**9, 999_999),
        (lambda n: True, 5, 4, None),
        (lambda n: n == 0, 0, 9, 0),
        # too small is refused as well
        (lambda n: 700 <= n <= 912, 1, 999, 912),
        # a hole just below the edge: what stands above it is not trusted
        (lambda n: n <= 980 and not 955 <= n < 970, 0, 1000, 954),
    ],
)
def test_the_edge(holds: Callable[[int], bool], least: int, most: int, edge: int | None) -> None:
    assert largest(holds, least, most) == edge


def test_a_thin_range_is_found() -> None:
    """Weights that fill a card leave a fraction a few thousandths; a host pool must be larger than
    the device's and smaller than RAM."""
    assert largest(lambda n: n == 901, 1, 999, each=True) == 901
    assert largest(lambda n: 6200 <= n <= 6290, 1, 10_000) == 6290


def test_it_asks_seldom() -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n <= 46

    assert largest(holds, 1, 10_000) == 46
    assert len(asked) < 100
