"""`--compare`: variants of one service side by side, in figures that decide between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsctl.errors import SpecError
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.solve import FRACTION, RATIO, TIER, Solved
from opsctl.forecast.values import NoForecast

FP8 = "fp8_e4m3"
DTYPE = "kv-cache-dtype"
# Ideas on quality that no arithmetic tells.
QUALITY = "FP8 KV halves the bytes of a token; answers may change: check them on your own tasks"


@dataclass(frozen=True, slots=True)
class Variant:
    """One column. `sets`: what is written differently; `outlook` None: it cannot be, and `why`."""

    name: str
    sets: tuple[str, ...]
    outlook: Outlook | None
    why: str = ""
    notes: tuple[str, ...] = ()


Ask = Callable[[Sequence[str]], Outlook]
Fit = Callable[[Sequence[str], str], Solved]


def compare(
    flags: Mapping[str, Any], ask: Ask, fit: Fit, more: Sequence[str] = ()
) -> tuple[Variant, ...]:
    """As described, the four usual ways to use memory that is left (a higher fraction, the host
    tier, FP8 KV, both), each by itself and as large as it fits, and `more` ("K=V K=V").

    `flags`: as described. `ask` answers for the description with changes; `fit` finds the largest
    value of a key under changes. What cannot be answered stays in the table, with the reason.
    """
    first = _asked("as described", (), ask)
    found = [first]
    fp8 = (f"{DTYPE}={FP8}",)
    alone = untiered(flags)
    if flags.get(TIER):
        found.append(_asked("no host tier", alone, ask))
    found.append(_fitted("higher fraction", alone, FRACTION, ask, fit))
    found.append(_fitted("host tier", (), RATIO, ask, fit))
    if not str(flags.get(DTYPE) or "").startswith("fp8"):
        found.append(_asked("FP8 KV", (*fp8, *alone), ask, QUALITY))
        found.append(_fitted("FP8 KV + tier", fp8, RATIO, ask, fit, QUALITY))
    found += [_asked(text, tuple(text.split()), ask, typed=True) for text in more]
    return tuple(_beside(one, first) for one in found)


def _beside(one: Variant, first: Variant) -> Variant:
    """Without the notes that are of the description itself: those are told once."""
    return replace(one, notes=tuple(note for note in one.notes if note not in first.notes))


def untiered(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Without the tier, and without flags that mean nothing without it: some versions refuse them
    then."""
    tier = [name for name in flags if name == TIER or name.startswith("hicache-")]
    return tuple(f"{name}=null" for name in tier)


def _asked(name: str, sets: tuple[str, ...], ask: Ask, *notes: str, typed: bool = False) -> Variant:
    """`typed`: somebody wrote these settings, and hears what is wrong with them (SpecError)."""
    try:
        said = ask(sets)
        return Variant(name, sets, said, notes=(*notes, *said.notes))
    except NoForecast as reason:
        return Variant(name, sets, None, str(reason), notes)
    except SpecError as reason:
        if typed:
            raise
        return Variant(name, sets, None, str(reason), notes)


def _fitted(name: str, sets: tuple[str, ...], key: str, ask: Ask, fit: Fit, *notes: str) -> Variant:
    """The variant with the largest value of `key` that fits."""
    try:
        found = fit(sets, key)
    except (NoForecast, SpecError) as reason:
        return Variant(name, sets, None, str(reason), notes)
    if found.value is None:
        return Variant(name, sets, None, "; ".join(found.limits) or f"no {key} fits", notes)
    return _asked(name, (*sets, *found.sets), ask, *notes)
