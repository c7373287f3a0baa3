"""Everything that is told of a service before it is started, put together from its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.engine.advisories import Advisory, advisories
from opsctl.forecast import advised
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.notes import notes
from opsctl.forecast.question import Question
from opsctl.forecast.values import MEASURED, Case, Figure


@dataclass(frozen=True, slots=True)
class Outlook:
    """`start`: seconds by phase of the start. `notes`: what is missing or assumed, for people."""

    service: str
    model: str  # its folder
    case: Case
    result: Result
    start: Mapping[str, Figure]
    payoff: Any
    advisories: tuple[Advisory, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return self.result.fit.verdict

    @property
    def tier(self) -> bool:
        return bool(self.case.flags.get("enable-hierarchical-cache"))

    @property
    def weights(self) -> Figure | None:
        """Of the target on one rank: as an earlier start logged them, else by tensor shapes."""
        seen = self.case.measured.weights
        if seen is None:
            return self.case.weights
        return Figure(seen, None, None, MEASURED, self.case.measured.source)

    @property
    def start_total(self) -> Figure | None:
        """Seconds of all phases; None where one of them is not known."""
        return None

    @property
    def kinds(self) -> tuple[str, ...]:
        return advised.kinds(self.case.shape)


def outlook(question: Question, sets: Sequence[str] = (), *, steps: bool = False) -> Outlook:
    """Of the description with `sets` over it. Raises NoForecast where nothing can be said,
    SpecError for what is wrong in the description."""
    manifest, case = question.asked(sets).manifest, question.case(sets)
    result = evaluate(case, steps=steps, swap=manifest["memory"]["swap"])
    return Outlook(
        question.name,
        str(manifest["model"]["path"]),
        case,
        result,
        {},
        None,
        tuple(advisories(advised.facts(manifest, case, result))),
        notes(case, result),
    )
