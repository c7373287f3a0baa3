"""What helps a service that does not fit: settings that were asked of the forecast, so that none is
offered that ends the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opsctl.errors import Refused, SpecError
from opsctl.forecast.compare import untiered
from opsctl.forecast.fit import NOT
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
    if flags.get(TIER) and _starts(untiered(flags), ask):
        yield f"{' '.join(f'--set {part}' for part in untiered(flags))} would start"
    for ranks in _more(flags):
        if _starts((f"{RANKS}={ranks}",), ask):
            yield f"--set {RANKS}={ranks} would start"
            return


def keys(flags: Mapping[str, Any]) -> Iterator[str]:
    """Those that may be fitted, the gentlest first."""
    if flags.get(TIER):
        yield SIZE if flags.get(SIZE) else RATIO
    yield FRACTION
    if flags.get(CONTEXT) is not None:
        yield CONTEXT


def _more(flags: Mapping[str, Any]) -> Iterator[int]:
    ranks = 2 * int(flags.get(RANKS) or 1)
    while ranks <= _MOST_RANKS:
        yield ranks
        ranks *= 2


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


def _starts(sets: Sequence[str], ask: Ask) -> bool:
    try:
        return ask(sets).verdict != NOT
    except (NoForecast, SpecError, Refused):
        return False
