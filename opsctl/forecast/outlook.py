"""Everything that is told of a service before it is started, put together from its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsctl.engine.advisories import Advisory, advisories
from opsctl.forecast import advised, figures, hostside, payoff, refused, start
from opsctl.forecast.device.settings import settings
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.notes import notes
from opsctl.forecast.payoff import Payoff
from opsctl.forecast.question import Question
from opsctl.forecast.values import Case, Figure, NoStart


@dataclass(frozen=True, slots=True)
class Outlook:
    """`start`: seconds by phase of the start. `notes`: what is missing or assumed, for people."""

    service: str
    model: str  # its folder
    case: Case
    result: Result
    start: Mapping[str, Figure]
    payoff: Payoff | None
    advisories: tuple[Advisory, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return self.result.fit.verdict

    @property
    def tier(self) -> bool:
        return bool(self.case.flags.get("enable-hierarchical-cache"))

    @property
    def caches(self) -> int:
        """How many caches of prefixes the service has: every DP rank schedules by itself, over a
        tree and pools of its own, with attention split over them (enable-dp-attention) or not."""
        return max(settings(self.case).groups, int(self.case.flags.get("dp-size") or 1))

    @property
    def weights(self) -> Figure | None:
        """What loading takes of one GPU."""
        return figures.weights(self.case)

    @property
    def start_total(self) -> Figure | None:
        """Seconds of all phases; None where one of them is not known."""
        return start.total(self.start)

    @property
    def kinds(self) -> tuple[str, ...]:
        return advised.kinds(self.case.shape)


def outlook(question: Question, sets: Sequence[str] = (), *, steps: bool = False) -> Outlook:
    """Of the description with `sets` over it. Raises NoForecast where nothing can be said,
    SpecError for what is wrong in the description."""
    manifest, case = question.asked(sets).manifest, question.case(sets)
    if why := refused.unseated(manifest, question.facts, case):
        raise NoStart(why)
    refused.refuse(case)
    result = evaluate(case, steps=steps, swap=manifest["memory"]["swap"])
    phases = start.seconds(case, result)
    short = start.too_short(phases, manifest["timing"])
    busy = hostside.on_the_cards(manifest, question.facts)
    return Outlook(
        question.name,
        str(manifest["model"]["path"]),
        case,
        result,
        phases,
        payoff.crossover(case, result),
        tuple(advisories(advised.facts(manifest, case, result, question.facts))),
        tuple(filter(None, (*question.notes, *notes(case, result), short, busy))),
    )
