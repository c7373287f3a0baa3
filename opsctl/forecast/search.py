"""The largest whole number for which something holds: bisection that does not trust blindly."""

from __future__ import annotations

from collections.abc import Callable, Iterator

# Looks below the edge that bisection found: one that fails means that the rule is not monotonic.
LOOKS = 8
# Each look from above is this much lower than the one before it; then, if none held, this much.
STEPS = (0.93, 0.995)


def largest(
    holds: Callable[[int], bool], least: int, most: int, *, each: bool = False
) -> int | None:
    """The largest n of least … most for which `holds` is true; None if there is none.

    Looked for from above, since what is too small may be refused as well: a pool that is smaller
    than the device's, a fraction that does not even hold the weights. `each`: every number is
    looked at; else an island that is thinner than 0.5 % of its value may be missed, or one of 7 %
    above a broader one.
    """
    if each:
        return next((n for n in range(most, least - 1, -1) if holds(n)), None)
    for step in STEPS:
        bad = most + 1
        for good in _down(least, most, step):
            if holds(good):
                return _edge(holds, good, bad)
            bad = good
    return None


def _down(least: int, most: int, step: float) -> Iterator[int]:
    n = most
    while n > least:
        yield n
        n = min(n - 1, int(n * step))
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
