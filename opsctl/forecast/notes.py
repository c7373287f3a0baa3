"""What a forecast does not know, or had to assume: told with the figures, always."""

from __future__ import annotations

from opsctl.engine import rules
from opsctl.forecast.device.page import assumed
from opsctl.forecast.evaluate import Result
from opsctl.forecast.refused import together
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
    """What the engine takes otherwise than written, or would not look at, with this model and
    cards; of releases that nobody checked the rules against, what it might refuse too."""
    judged = together(case)
    if judged is None:
        return []
    said = [f.text for f in judged.findings if f.kind == rules.REFUSE or f.contradicts]
    unused: dict[str, list[str]] = {}
    for one in judged.findings:
        if one.kind == rules.IGNORED:
            unused.setdefault(one.text, []).append(one.flag)
    return [*said, *(f"{', '.join(flags)}: {text}" for text, flags in unused.items())]


def _undrafted(case: Case) -> bool:
    algorithm = str(case.flags.get(SPECULATIVE) or "").upper()
    return algorithm not in ("", "NGRAM") and case.draft is None
