"""`--fit KEY`: the largest value that fits, by evaluating a Case with one flag changed.

A value fits where its whole band does: what is left is above the headroom even if every estimate
turns out badly, and the engine's own test of memory passes in whatever order its ranks come. It
is rounded down to what a person would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches

from opsctl.errors import Refused
from opsctl.forecast.device.settings import parsed
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.fit import FITS, NOT, TIGHT, UNKNOWN, empty
from opsctl.forecast.host.versions import BY_RANKS
from opsctl.forecast.search import largest
from opsctl.forecast.slack import ACTIVATIONS, Slack, demanded, graphs, slack
from opsctl.forecast.values import Case, Figure, NoForecast, NoStart
from opsctl.onhost.expect import GiB, count, gib

CENT = GiB // 100
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
    """A flag that can be fitted: its value is n × times / parts, for n of 1 … most."""

    flag: str
    most: int
    unit: str
    times: int = 1
    parts: int = 1

    def value(self, n: int) -> float | int:
        return n * self.times / self.parts if self.parts > 1 else n * self.times


KNOBS = {
    knob.flag: knob
    for knob in (
        Knob(RATIO, 9_999, "", parts=10),  # a description takes less than 1000
        Knob(SIZE, 10_000, "GB a rank"),
        Knob(FRACTION, 999, "", parts=1000),
        Knob(CONTEXT, 1 << 14, "tokens", times=1024),  # pages divide 1024
    )
}


@dataclass(frozen=True, slots=True)
class Solved:
    """`value` None: no value fits. `limits`: what the next larger value would break. `possible`:
    the largest that may still start, with less certainty or headroom; None where it is `value`."""

    key: str
    value: float | int | None
    unit: str
    result: Result | None
    limits: tuple[str, ...]
    possible: float | int | None
    headroom: int
    gpu_headroom: int
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


def solve(case: Case, key: str, headroom: int, gpu_headroom: int) -> Solved:
    """`headroom`: bytes of RAM that must be left; `gpu_headroom`: bytes of a GPU that must be left
    beside weights, pools and what else is known. Raises Refused for an unknown key, NoForecast
    where no value can be judged."""
    dial = knob(key)
    trial = _Trial(replace(case, min_available=headroom), dial, gpu_headroom)
    trial.demand()
    # Weights that fill a card leave a fraction a range of a few thousandths.
    each = dial.flag == FRACTION
    best = largest(lambda n: trial.judge(n)[0] == FITS, 1, trial.most, each=each)
    loose = largest(lambda n: trial.judge(n)[0] != NOT, best or 1, trial.most, each=each)
    result = None if best is None else trial.result(best)
    return Solved(
        dial.flag,
        None if best is None else dial.value(best),
        dial.unit,
        result,
        trial.limits(best, loose),
        None if loose in (None, best) else dial.value(loose or 0),
        headroom,
        gpu_headroom,
        trial.notes(result),
    )


def _room(tokens: Figure | None) -> str:
    if tokens is None:
        return "an unknown number of fits in a GPU"
    if tokens.least == tokens.value:
        return f"{count(tokens.value)} fit in a GPU"
    return f"{count(tokens.least or 0)} are sure to fit in a GPU"


def _down(size: int) -> str:
    """Rounded down, so that what is short of a demand never looks like it."""
    return gib(max(0, size) // CENT * CENT)


class _Trial:
    """One knob of one case, turned."""

    def __init__(self, case: Case, dial: Knob, gpu_headroom: int) -> None:
        self.case, self.dial, self.gpu_headroom = case, dial, gpu_headroom
        self.most, self.edge = dial.most, (f"more than {dial.value(dial.most)} is not looked at",)
        self.graphs = graphs(case)
        if dial.flag == CONTEXT and case.shape.context:
            self.most = case.shape.context // dial.times
            self.edge = (f"the model itself allows {count(case.shape.context)} tokens",)

    def at(self, n: int) -> Case:
        flags = {**self.case.flags, self.dial.flag: self.dial.value(n)}
        measured = self.case.measured
        if self.dial.flag in (RATIO, SIZE):
            flags[TIER] = True
            flags.pop(SIZE if self.dial.flag == RATIO else RATIO, None)
        if self.dial.flag == FRACTION:
            measured = replace(measured, tokens=None)  # they were counted with another fraction
        return replace(self.case, flags=flags, measured=measured)

    def result(self, n: int) -> Result:
        return evaluate(self.at(n))

    def judge(self, n: int) -> tuple[str, tuple[str, ...]]:
        """The verdict on a value, and why it is not better."""
        try:
            case = self.at(n)
            result = evaluate(case)
        except NoForecast as reason:
            return NOT, (str(reason),)
        if self.dial.flag in (RATIO, SIZE):
            return (NOT if result.fit.gpu == NOT else result.fit.ram), result.fit.reasons
        if result.fit.gpu == NOT:
            return NOT, result.fit.reasons
        verdict, reasons = self._gpu(case, result)
        if self.dial.flag == CONTEXT:  # no context changes what the pools in RAM take
            return verdict, reasons
        host = FITS if result.fit.ram == UNKNOWN else result.fit.ram
        if host == FITS:  # RAM that nobody told of limits nothing
            return verdict, reasons
        return max(verdict, host, key=_WORST.index), (*reasons, *result.fit.reasons)

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

    def _gpu(self, case: Case, result: Result) -> tuple[str, tuple[str, ...]]:
        for device in result.devices:
            if self.dial.flag == CONTEXT:
                tokens, wanted = device.tokens, int(case.flags[CONTEXT])
                if tokens is None or (tokens.least or 0) < wanted:
                    return NOT, (f"{count(wanted)} tokens of one request: {_room(tokens)}",)
            left = slack(case, device)
            if left is None:
                continue
            free = (left.left.least or 0) - (self.graphs or 0)
            wanted = self.gpu_headroom
            if wanted == ACTIVATIONS:  # nobody asked for another: as every forecast is judged
                wanted = demanded(case)
            if free < wanted:
                words = (
                    f"{_down(free)} of a GPU would be left beside weights, pools and graphs, "
                    f"{gib(wanted)} demanded"
                )
                return (TIGHT if free > 0 else NOT), (words,)
        return FITS, ()

    def demand(self) -> None:
        """Raises NoForecast if what every value would be judged by is not known."""
        try:
            device = evaluate(self.case).device
        except NoStart:
            if self.dial.flag == FRACTION:
                return  # which is why somebody asks
            raise
        if device.tokens is None and self.dial.flag != SIZE:
            raise NoForecast(
                "the tokens of the KV cache are not known: give --gpu-free-before and "
                "--gpu-free-after, --gpu-tokens, or the --journal of an earlier start"
            )
        if self.dial.flag in (RATIO, SIZE) and self.case.memory is None:
            raise NoForecast("the host's RAM is not known: give --ram-total and --ram-available")
        if self.dial.flag == FRACTION and slack(self.case, device) is None:
            raise NoForecast(
                "the GPU memory before the weights is not known: give --gpu-free-before and "
                "--gpu-free-after, or the --journal of an earlier start"
            )

    def notes(self, best: Result | None) -> tuple[str, ...]:
        """What a reader of the value must know."""
        if self.dial.flag == CONTEXT and best is not None and best.fit.ram == NOT:
            reasons = "; ".join(best.fit.reasons)
            return (
                f"judged by the GPU alone: no context length changes what RAM takes: {reasons}",
            )
        if self.dial.flag in (RATIO, SIZE):
            tight = best is not None and best.fit.gpu == TIGHT
            gpu = ("judged by RAM alone: the GPU is tight with any tier",) if tight else ()
            if parsed(self.case.version) < BY_RANKS:
                return gpu
            return (
                *gpu,
                f"{self.case.version} tests each rank's pool against its share of what the other "
                "ranks have left: the value passes in every order of ranks; a larger one may start "
                "today and fail tomorrow",
            )
        left = slack(self.case, best.device) if best is not None else None
        return () if left is None else tuple(self._margins(left))

    def _margins(self, left: Slack) -> Iterator[str]:
        yield (
            f"{gib(self.gpu_headroom)} of a GPU are kept for activations: SGLang's guide to tuning "
            "advises 5 to 8 GB"
        )
        unknown = list(left.unknown)
        if self.graphs is None:
            unknown.insert(0, "CUDA graphs")
        elif self.graphs:
            yield f"CUDA graphs are counted as the engine does: {gib(self.graphs)}"
        if unknown:
            yield f"not counted, and out of the same memory: {', '.join(unknown)}"
