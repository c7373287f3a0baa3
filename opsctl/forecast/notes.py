"""What a forecast does not know, or had to assume: told with the figures, always."""

from __future__ import annotations

from opsctl.engine import rules
from opsctl.forecast.device.draft import COUNTED, drafted
from opsctl.forecast.device.page import assumed
from opsctl.forecast.device.settings import parsed, settings
from opsctl.forecast.evaluate import Result
from opsctl.forecast.fit import NOT, TIGHT
from opsctl.forecast.refused import together
from opsctl.forecast.slack import table
from opsctl.forecast.values import Case
from opsctl.onhost.expect import GiB, count, gib

LARGE_TABLE = 4 * GiB  # a judgement: from here on it is worth a word
SPECULATIVE = "speculative-algorithm"


def notes(case: Case, result: Result) -> tuple[str, ...]:
    """For people; empty where everything is known."""
    found = [*case.measured.notes, *result.refused]
    device = result.device
    if device.tokens is None:
        found.append(unknown(case))
    if table := _table(case, result):
        found.append(table)
    limit, tokens = case.flags.get("max-total-tokens"), device.tokens
    if limit is not None and tokens is not None and int(limit) > (tokens.most or tokens.value):
        found.append(
            f"max-total-tokens {count(int(limit))} has no effect: at most "
            f"{count(tokens.most or tokens.value)} fit in a GPU"
        )
    if assumed(case):
        found.append(
            f"the cards are not known: pages of {device.page} were assumed; some cards and "
            "attention backends have pages of up to 128 tokens"
        )
    if _undrafted(case):
        found.append("the draft model's config.json is not known: its own KV pool is not counted")
    return (*found, *_together(case))


def unknown(case: Case) -> str:
    """Why the tokens are not known, and which figure is missing."""
    seen, begin = case.measured, "the number of tokens is not known before the first start: "
    charged = drafted(settings(case)) and parsed(case.version) >= COUNTED
    after = "after the draft's weights too" if charged else "after the weights"
    if seen.free_before is not None and seen.free_after is None and case.weights is None:
        return (
            f"{begin}the GPU memory that is free before the weights is known, and what is free "
            f"{after} is missing (--gpu-free-after)"
        )
    if seen.free_after is not None and seen.free_before is None and case.hardware.total is None:
        return (
            f"{begin}the GPU memory that is free {after} is known, and what is free before the "
            "weights is missing (--gpu-free-before, or --gpu-total to estimate it)"
        )
    if case.weights is not None:
        return f"{begin}the memory of the cards is missing (--gpu-total, or --gpu-free-before)"
    return (
        f"{begin}it follows from an earlier start (--journal), or from the GPU memory that is free "
        f"before the weights (--gpu-free-before, or --gpu-total to estimate it) and {after} "
        "(--gpu-free-after); where the model's files can be read, from their tensors"
    )


def _table(case: Case, result: Result) -> str:
    """The table of requests where it is what fills the GPU."""
    device, size = result.device, table(case, result.device)
    if size is None or size < LARGE_TABLE or result.fit.gpu not in (NOT, TIGHT):
        return ""
    context = case.flags.get("context-length") or case.shape.context
    assert device.max_running is not None and context is not None
    return (
        f"the table of requests takes {count(device.max_running)} requests × "
        f"{count(int(context))} tokens × 4 B = {gib(size)} of every GPU, beside weights and pools: "
        "set context-length to what requests need, or max-running-requests"
    )


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
