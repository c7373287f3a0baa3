"""Free memory → tokens and rows of every pool: the engine's own arithmetic, at one point.

The engine reckons in GiB as floating point, and so does this, in the same order: a token is lost
or won by the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opsctl.forecast.device import recurrent, window
from opsctl.forecast.device.plan import Plan, Stage
from opsctl.forecast.device.settings import Settings

GiB = 1 << 30


@dataclass(frozen=True, slots=True)
class Sizes:
    """`profiled`: tokens before caps and pages; `tokens`: what the engine logs as
    max_total_num_tokens; `swa`: rows of the window pool; `slots`: of recurrent state, by stage;
    `own`: what each stage profiled by itself, where its memory is known."""

    profiled: int
    tokens: int
    swa: int
    slots: tuple[int, ...]
    own: tuple[int, ...] = ()


def from_memory(rest: float, plan: Plan, set_: Settings, page: int) -> Sizes:
    """`rest`: GiB for all pools of a rank. Tokens are the least over all stages of the world.

    Raises NoForecast where the engine would refuse to start.
    """
    found = [_profile(stage, rest, set_) for stage in plan.stages]
    own = tuple(tokens for tokens, _ in found)
    profiled = capacity = min(own)
    if set_.key < (0, 5, 7) and set_.algorithm and set_.algorithm != "NGRAM":
        capacity += _extra(plan, set_, found[0][1])
    sizes = _finish(profiled, capacity, tuple(slots for _, slots in found), plan, set_, page)
    return replace(sizes, own=own) if len(own) > 1 else sizes


def between(
    least: Sizes, most: Sizes, plan: Plan, set_: Settings, page: int
) -> tuple[Sizes, Sizes]:
    """The edges of all that memory between those of `least` and `most` leads to. A slot of state
    more takes its memory away from KV, so that tokens fall where slots step: they lie within one
    step of what the edges have."""
    if least.slots == most.slots:
        return least, most
    step = max(
        (s.state.charged * (1 + s.state.drafts) / s.charged for s in plan.stages if s.state),
        default=0.0,
    )
    pages = (int(step) // page + 2) * page
    limit = set_.flags.get("max-total-tokens")
    bottom, top = least.tokens - pages, most.tokens + pages
    if limit is not None:
        top = min(top, max(most.tokens, int(limit) // page * page))
        if least.profiled - pages >= int(limit):
            bottom = least.tokens  # capped all the same
    return (
        replace(least, profiled=max(0, least.profiled - pages), tokens=max(0, bottom)),
        replace(most, profiled=most.profiled + pages, tokens=top),
    )


def from_tokens(tokens: int, plan: Plan, set_: Settings, page: int, edge: int = 0) -> Sizes:
    """Rows that follow from tokens that are known. `edge`: −1 and 1 for the least and the most
    that they may mean, where rounding hides something; 0 for the likely value."""
    slots = tuple(_slots(stage, tokens, set_, page, edge) for stage in plan.stages)
    first = plan.stages[0].window
    if first is None:
        return Sizes(tokens, tokens, 0, slots)
    kept = int(tokens * first.ratio) // page * page if first.full_layers else tokens
    return Sizes(tokens, tokens, kept, slots)


def _slots(stage: Stage, tokens: int, set_: Settings, page: int, edge: int) -> int:
    if stage.state is None:
        return 0
    at = tokens + (page if edge > 0 else page / 2 if edge == 0 else 0)
    found = recurrent.slots_beside(stage.state, at, stage.charged, set_)
    if found is None or stage.state.fixed is not None:
        return found or 0
    hidden = 1 + stage.state.share
    return max(0, int(found - (hidden if edge < 0 else hidden / 2 if edge == 0 else 0)))


def _profile(stage: Stage, rest: float, set_: Settings) -> tuple[int, int]:
    slots = 0
    if stage.state is not None:
        slots, rest = recurrent.take(stage.state, rest, set_)
    return max(0, int(int(rest * GiB) // stage.charged)), slots


def _extra(plan: Plan, set_: Settings, slots: int) -> int:
    """Tokens that releases up to 0.5.6 add for drafts, beyond the memory that was reckoned."""
    drafting, state, requests = plan.drafting, plan.stages[0].state, set_.running
    assert drafting is not None and requests is not None
    if state is not None and state.each:
        requests = min(requests, slots // state.each)
    return requests * (drafting.steps * drafting.branches + drafting.tokens) + 100


def _finish(
    profiled: int,
    capacity: int,
    slots: tuple[int, ...],
    plan: Plan,
    set_: Settings,
    page: int,
) -> Sizes:
    limit = set_.flags.get("max-total-tokens")
    if limit is not None:
        capacity = min(capacity, int(limit))
    capacity = capacity // page * page
    first = plan.stages[0].window
    if first is None:
        return Sizes(profiled, capacity, 0, slots)
    tokens, kept = window.split(first, capacity, page, set_)
    if not tokens:
        tokens = kept
    return Sizes(profiled, tokens, kept, slots)
