"""The largest whole number for which something holds: bisection that does not trust blindly."""

from __future__ import annotations

from collections.abc import Callable, Iterator

# Looks below the edge that bisection found: one that fails means that the rule is not monotonic.
LOOKS = 8
# Each look from above is this much lower than the one before it.
STEP = 0.93


def largest(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """The largest n of least … most for which `holds` is true; None if there is none.

    Looked for from above, since what is too small may be refused as well: a pool that is smaller
    than the device's, a fraction that does not even hold the weights. An island that is thinner
    than 7 % of its value may be missed.
    """
    bad = most + 1
    for good in _down(least, most):
        if holds(good):
            return _edge(holds, good, bad)
        bad = good
    return None


def _down(least: int, most: int) -> Iterator[int]:
    n = most
    while n > least:
        yield n
        n = min(n - 1, int(n * STEP))
    if most >= least:
        yield least


def _edge(holds: Callable[[int], bool], good: int, bad: int) -> int:
    least = good
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    for n in range(least, good, max(1, (good - least) // LOOKS)):
        if not holds(n):
            return _edge(holds, least, n)
    return good
