"""What helps a service that does not fit: settings that were asked of the forecast, so that none is
offered that ends the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opsctl.errors import Refused, SpecError
from opsctl.forecast.compare import untiered
from opsctl.forecast.fit import NOT, UNKNOWN
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.solve import CONTEXT, FRACTION, RATIO, SIZE, TIER, Solved
from opsctl.forecast.values import NoForecast

RANKS = "tp-size"
_MOST_RANKS = 16

Ask = Callable[[Sequence[str]], Outlook]
Fit = Callable[[str], Solved]


def remedies(flags: Mapping[str, Any], ask: Ask, fit: Fit, tried: str = "") -> Iterator[str]:
    """Options that were found to help, in words, each by itself, the gentlest first. `flags`: as
    described; `ask` answers for the description with changes, `fit` finds the largest value of a
    key; `tried`: a key for which none was found."""
    for key in keys(flags):
        if key != tried and (what := _fitted(key, ask, fit)):
            yield f"--fit {key} tells the largest value that {what}"
    if flags.get(TIER) and (what := _starts(untiered(flags), ask)):
        yield f"{' '.join(f'--set {part}' for part in untiered(flags))} {what}"
    for ranks in _ranks(int(flags.get(RANKS) or 1)):
        if what := _starts((f"{RANKS}={ranks}",), ask):
            yield f"--set {RANKS}={ranks} {what}"
            return


def keys(flags: Mapping[str, Any]) -> Iterator[str]:
    """Those that may be fitted, the gentlest first."""
    if flags.get(TIER):
        yield SIZE if flags.get(SIZE) else RATIO
    yield FRACTION
    if flags.get(CONTEXT) is not None:
        yield CONTEXT


def _ranks(now: int) -> Iterator[int]:
    """More of them hold less each; fewer need fewer cards and heads."""
    yield from (now << n for n in range(1, 5) if now << n <= _MOST_RANKS)
    yield from (now >> n for n in range(1, 5) if now >> n)


def _fitted(key: str, ask: Ask, fit: Fit) -> str:
    """What its largest value does; "" if there is none."""
    try:
        found = fit(key)
    except (NoForecast, SpecError, Refused):
        return ""
    if found.value is not None:
        return "fits" if _starts(found.sets, ask) else ""
    possible = found.possible is not None and _starts((f"{key}={found.possible:.10g}",), ask)
    return "may start" if possible else ""


def _starts(sets: Sequence[str], ask: Ask) -> str:
    """What becomes of the description with `sets`, in words; "" where it does not fit."""
    try:
        verdict = ask(sets).verdict
    except (NoForecast, SpecError, Refused):
        return ""
    return "" if verdict == NOT else "may start" if verdict == UNKNOWN else "would start"
