"""`--fit KEY`: the largest value that fits, by evaluating a Case with one flag changed.

A value fits where the forecast of it says so (forecast/fit.py): its whole band does. What is left
is above the headroom even if every estimate turns out badly, and the engine's own test of memory
passes in whatever order its ranks come. There is no second judgement here, or `--set` of the answer
would be called otherwise. It is rounded down to what a person would write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import count as counting
from typing import Any

from opsctl.errors import Refused
from opsctl.forecast.device.settings import parsed
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.fit import FITS, NOT, TIGHT, UNKNOWN, empty
from opsctl.forecast.host.versions import BY_RANKS
from opsctl.forecast.notes import unknown
from opsctl.forecast.search import largest
from opsctl.forecast.slack import Slack, demanded, graphs, slack
from opsctl.forecast.values import Case, NoForecast, NoStart
from opsctl.onhost.expect import count, gib

_WORST = (FITS, TIGHT, NOT)
TIER = "enable-hierarchical-cache"
RATIO, SIZE, FRACTION, CONTEXT = (
    "hicache-ratio",
    "hicache-size",
    "mem-fraction-static",
    "context-length",
)


@dataclass(frozen=True, slots=True)
class Knob:
    """A flag that can be fitted: its value is n × times / parts, for n of 1 … most. `probes`: the
    first n that is tried as another value than all that are known, and how far the next is."""

    flag: str
    most: int
    unit: str
    times: int = 1
    parts: int = 1
    probes: tuple[int, int] = (1, 1)

    def value(self, n: int) -> float | int:
        return n * self.times / self.parts if self.parts > 1 else n * self.times

    def step(self, value: Any) -> int | None:
        """The n of a value; None for one that is never tried."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        n = round(value * self.parts / self.times)
        return n if 0 < n <= self.most and self.value(n) == value else None


KNOBS = {
    knob.flag: knob
    for knob in (
        Knob(RATIO, 9_999, "", parts=10, probes=(20, 10)),  # a description takes less than 1000
        Knob(SIZE, 10_000, "GB a rank"),
        Knob(FRACTION, 999, "", parts=1000, probes=(880, -1)),
        Knob(CONTEXT, 1 << 14, "tokens", times=1024),  # pages divide 1024
    )
}


@dataclass(frozen=True, slots=True)
class Solved:
    """`value` None: no value fits. `sets`: all that has to be set for it, KEY=VALUE. `limits`: what
    the next larger value would break. `possible`: the largest that may still start, with less
    certainty or headroom; None where it is `value`."""

    key: str
    value: float | int | None
    unit: str
    result: Result | None
    limits: tuple[str, ...]
    possible: float | int | None
    headroom: int
    gpu_headroom: int
    sets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def knob(key: str) -> Knob:
    """Raises Refused with the nearest name."""
    name = key.removeprefix("--").replace("_", "-")
    if name in KNOBS:
        return KNOBS[name]
    near = get_close_matches(name, KNOBS, n=1, cutoff=0.6)
    near = near or [known for known in KNOBS if name and name in known]
    raise Refused(
        f"--fit {key}: cannot be fitted; {', '.join(KNOBS)} can",
        hint=f"--fit {near[0]}" if near else "",
    )


def turned(key: str, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """What has to be set beside the key itself for its value to count: KEY=VALUE. A size goes
    before a ratio, and both count only with the tier switched on."""
    if key not in (RATIO, SIZE):
        return ()
    tier = () if flags.get(TIER) else (f"{TIER}=true",)
    other = SIZE if key == RATIO else RATIO
    return (*tier, f"{other}=null") if flags.get(other) is not None else tier


def probe(key: str, taken: Collection[Any]) -> str:
    """A value that is none of `taken`, KEY=VALUE: of those more is known than of all others."""
    dial = KNOBS[key]
    found = next(v for v in map(dial.value, counting(*dial.probes)) if v not in taken)
    return f"{key}={found:.10g}"


def solve(
    case: Case,
    key: str,
    headroom: int,
    gpu_headroom: int | None = None,
    other: Case | None = None,
    exact: Sequence[Case] = (),
) -> Solved:
    """`case`: as described; `other`: with another value of the key, whose figures hold for all
    values but the described one (None: as described) and those of `exact`, cases of values that
    something was measured at. A number of tokens that was measured holds for no other value of a
    key that divides the GPU's memory. `headroom`: bytes of RAM that must be left; `gpu_headroom`:
    bytes of a GPU that must be left beside weights, pools and what else is known, None: as every
    forecast is judged. Raises Refused for an unknown key, NoForecast where no value can be judged.
    """
    dial = knob(key)
    trial = _Trial(dial, case, other or case, exact)
    trial.demanding(headroom, gpu_headroom)
    trial.demand()
    # Weights that fill a card leave a fraction a range of a few thousandths.
    each = dial.flag == FRACTION
    best = largest(trial.fits, 1, trial.most, each=each)
    for there in sorted(trial.known):  # of which more is known: they may stand above the others
        if there > (best or 0) and trial.fits(there):
            best = there
    loose = largest(lambda n: trial.judge(n)[0] != NOT, best or 1, trial.most, each=each)
    result = None if best is None else trial.result(best)
    value = None if best is None else dial.value(best)
    return Solved(
        dial.flag,
        value,
        dial.unit,
        result,
        trial.limits(best, loose),
        None if loose in (None, best) else dial.value(loose or 0),
        headroom,
        demanded(trial.at(best or 1)),
        () if value is None else (*turned(key, case.flags), f"{dial.flag}={value:.10g}"),
        trial.notes(best, result),
    )


class _Trial:
    """One knob of one case, turned."""

    def __init__(self, dial: Knob, case: Case, other: Case, exact: Sequence[Case]) -> None:
        if dial.flag not in (RATIO, SIZE):  # the tier stands behind the GPU's pools
            other = replace(other, measured=replace(other.measured, tokens=None))
        self.dial, self.case, self.other = dial, case, other
        self.most, self.edge = dial.most, (f"more than {dial.value(dial.most)} is not looked at",)
        self.graphs = graphs(case)
        if dial.flag == CONTEXT and case.shape.context:
            self.most = case.shape.context // dial.times
            self.edge = (f"the model itself allows {count(case.shape.context)} tokens",)
        described = [] if turned(dial.flag, case.flags) else [case]
        found = {dial.step(one.flags.get(dial.flag)): one for one in (*exact, *described)}
        self.known = {n: one for n, one in found.items() if n is not None and n <= self.most}

    def demanding(self, headroom: int, gpu_headroom: int | None) -> None:
        """Bytes that must be left; see `solve`."""

        def asking(one: Case) -> Case:
            return replace(one, min_available=headroom, gpu_headroom=gpu_headroom)

        self.case, self.other = asking(self.case), asking(self.other)
        self.known = {n: asking(one) for n, one in self.known.items()}

    def at(self, n: int) -> Case:
        if n in self.known:
            return self.known[n]
        flags = {**self.other.flags, self.dial.flag: self.dial.value(n)}
        if self.dial.flag in (RATIO, SIZE):
            flags[TIER] = True
            flags.pop(SIZE if self.dial.flag == RATIO else RATIO, None)
        return replace(self.other, flags=flags)

    def result(self, n: int) -> Result:
        return evaluate(self.at(n))

    def fits(self, n: int) -> bool:
        return self.judge(n)[0] == FITS

    def judge(self, n: int) -> tuple[str, tuple[str, ...]]:
        """The verdict on a value, of what it changes; and why it is not better."""
        try:
            result = self.result(n)
        except NoForecast as reason:
            return NOT, (str(reason),)
        fit, flag = result.fit, self.dial.flag
        if fit.gpu == NOT:
            return NOT, fit.reasons
        if flag in (RATIO, SIZE):
            return fit.ram, fit.reasons
        if flag == CONTEXT:  # no context changes what the pools in RAM take
            return (NOT if self._beyond(result, n) else fit.gpu), fit.reasons
        ram = FITS if fit.ram == UNKNOWN else fit.ram  # RAM that nobody told of limits nothing
        return max(fit.gpu, ram, key=_WORST.index), fit.reasons

    def _beyond(self, result: Result, n: int) -> bool:
        """Whether by the best estimate no request can be as long."""
        tokens = [device.tokens for device in result.devices]
        return any(one is None or one.value < self.dial.value(n) for one in tokens)

    def limits(self, best: int | None, loose: int | None) -> tuple[str, ...]:
        """What stands against the next larger value; where none fits, against the one that comes
        nearest: the largest that may start, else the first that is no mere impossibility."""
        if best is not None:
            return self.judge(best + 1)[1] if best < self.most else self.edge
        if loose is not None and self.dial.flag != FRACTION:  # less leaves more there
            return self._told(loose)
        steps = range(1, self.most + 1, max(1, self.most // 1000))
        nearest = next((n for n in steps if not self.impossible(n)), self.most)
        return self._told(nearest)

    def _told(self, n: int) -> tuple[str, ...]:
        """Why a value is not better, with the value: nobody asked for that one."""
        at = f"{self.dial.flag} {self.dial.value(n)}"
        return tuple(f"at {at}: {why}" for why in self.judge(n)[1])

    def impossible(self, n: int) -> bool:
        """Whether the engine would end at once, or nothing can be said."""
        try:
            result = self.result(n)
        except NoForecast:
            return True
        if self.dial.flag == FRACTION and any(map(empty, result.devices)):
            return True
        return any(one.refused for pools in result.pools for one in pools or ())

    def demand(self) -> None:
        """Raises NoForecast if what every value would be judged by is not known."""
        try:
            device = evaluate(self.other).device
        except NoStart:
            if self.dial.flag == FRACTION:
                return  # which is why somebody asks
            raise
        if device.tokens is None and self.dial.flag != SIZE:
            told = "; --gpu-tokens tells it too" if self.dial.flag == RATIO else ""
            raise NoForecast(unknown(self.other) + told)
        if self.dial.flag in (RATIO, SIZE) and self.case.memory is None:
            raise NoForecast("the host's RAM is not known: give --ram-total and --ram-available")

    def notes(self, best: int | None, result: Result | None) -> tuple[str, ...]:
        """What a reader of the value must know."""
        if best is None or result is None:
            return ()
        return (*self._beside(result), *self._of_key(best, result))

    def _beside(self, result: Result) -> Iterator[str]:
        """Why the forecast as a whole is no better: what no value of this key changes."""
        fit, flag = result.fit, self.dial.flag
        why = "; ".join(fit.reasons)
        if flag == CONTEXT and fit.ram in (TIGHT, NOT):
            yield f"judged by the GPU alone: no context length changes what RAM takes: {why}"
        if flag in (RATIO, SIZE) and fit.gpu == TIGHT:
            yield f"judged by RAM alone: the GPU is tight with any tier: {why}"

    def _of_key(self, best: int, result: Result) -> Iterator[str]:
        if self.dial.flag not in (RATIO, SIZE):
            case = self.at(best)
            left = slack(case, result.device)
            yield from () if left is None else self._margins(left, demanded(case))
        elif parsed(self.case.version) >= BY_RANKS:
            yield (
                f"{self.case.version} tests each rank's pool against its share of what the other "
                "ranks have left: the value passes in every order of ranks; a larger one may start "
                "today and fail tomorrow"
            )

    def _margins(self, left: Slack, wanted: int) -> Iterator[str]:
        yield (
            f"{gib(wanted)} of a GPU are kept for activations: SGLang's guide to tuning advises 5 "
            "to 8 GB"
        )
        unknown = list(left.unknown)
        if self.graphs is None:
            unknown.insert(0, "CUDA graphs")
        elif self.graphs:
            yield f"CUDA graphs are counted as the engine does: {gib(self.graphs)}"
        if unknown:
            yield f"not counted, and out of the same memory: {', '.join(unknown)}"
