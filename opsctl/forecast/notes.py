"""What a forecast does not know, or had to assume: told with the figures, always."""

from __future__ import annotations

from opsctl.engine import rules
from opsctl.errors import SpecError
from opsctl.forecast.advised import kinds
from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.page import assumed
from opsctl.forecast.evaluate import Result
from opsctl.forecast.values import Case

SPECULATIVE = "speculative-algorithm"


def notes(case: Case, result: Result) -> tuple[str, ...]:
    """For people; empty where everything is known."""
    found = [*case.measured.notes, *result.refused]
    device = result.device
    if device.tokens is None:
        found.append(
            "the number of tokens is not known before the first start: it follows from an earlier "
            "start, or from the GPU memory that is free before the weights and after them"
        )
    if assumed(case):
        found.append(
            f"the cards are not known: pages of {device.page} were assumed; some cards and "
            "attention backends have pages of up to 128 tokens"
        )
    if _undrafted(case):
        found.append("the draft model's config.json is not known: its own KV pool is not counted")
    return (*found, *_together(case))


def _together(case: Case) -> list[str]:
    """What the engine would refuse, or take otherwise than written, with this model and cards."""
    shape, hardware = case.shape, case.hardware
    model = {"architecture": shape.architecture, "kind": kinds(shape), "context": shape.context}
    cards: dict[str, object] = {"vendor": hardware.vendor}
    if (found := capability(hardware)) is not None:
        cards["capability"] = float("{}.{}".format(*found))
    known = {name: value for name, value in model.items() if value}
    try:
        judged = rules.judge(rules.Facts(case.version, case.flags, case.env, known, cards))
    except SpecError:
        return []  # a release of before, whose catalogue is not here any more
    return [f.text for f in judged.findings if f.kind == rules.REFUSE or f.contradicts]


def _undrafted(case: Case) -> bool:
    algorithm = str(case.flags.get(SPECULATIVE) or "").upper()
    return algorithm not in ("", "NGRAM") and case.draft is None
