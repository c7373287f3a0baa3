"""The best that is known by measurement: earlier starts here, a journal, the owner's figures.

An earlier start replaces estimates only where its figures hold for these settings: forecast/
carried.py says which settings matter. Figures of two sources are mixed only where they do not
depend on each other: memory before and after the weights come from one and the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsctl.errors import Refused
from opsctl.forecast import hostside
from opsctl.forecast.credible import NOTHING, Known, contradiction, loaded, of_other_start
from opsctl.forecast.figures import speed
from opsctl.forecast.recorded import filled, recorded
from opsctl.forecast.values import CUT, Measured
from opsctl.onhost.expect import gib

__all__ = ["measured"]

WRITTEN = "the owner's figures"
# The beginning of a note.
NOT_USED = "the owner's figures (memory.calibration) were not used"


@dataclass(frozen=True, slots=True)
class Typed:
    """What an operator asked with. `names`: keys of the figures that were typed, which go before
    all others; `size`: model.size, bytes; `changed`: settings that were set over the description
    and may change the weights; `retuned`: those that may change the number of tokens."""

    names: frozenset[str] = frozenset()
    size: int | None = None
    changed: tuple[str, ...] = ()
    retuned: tuple[str, ...] = ()


UNTYPED = Typed()


def measured(
    manifest: Mapping[str, Any],
    facts: Mapping[str, Any],
    calibration: Any = None,
    journal: str = "",
    held: Known = NOTHING,
    asked: Typed = UNTYPED,
) -> Measured:
    """What was typed, else from recorded starts ("starts" of `facts`, the newest first), else a
    journal's text, else the owner's figures (a mapping or object with gpu_free_before,
    gpu_free_after, kv_tokens). `held`: what journal and owner are held against. Raises Refused for
    a journal that tells of no start, and for figures that were typed and cannot be.
    """
    typed, rest = _parted(calibration, asked.names)
    if asked.names and (why := contradiction(typed, held)):
        options = ", ".join(_OPTIONS[name] for name in sorted(asked.names))
        raise Refused(f"{options}: {why}", hint=_HINT)
    found = recorded(manifest, facts.get("starts") or [])
    if asked.names:
        beside = _beside(typed, found, "earlier starts here")
        found = replace(filled(typed, beside), earlier=found.earlier)
    if journal:
        from opsctl.forecast.journalled import (
            from_journal,
        )  # its patterns cost more than a forecast

        seen = _of_these_cards(from_journal(journal, manifest), manifest, facts)
        seen = _credible(_of_these_settings(seen, asked.retuned), held, asked.changed)
        found = filled(found, _beside(typed, seen, "the journal"))
    found = filled(found, _owners(rest, held, manifest, facts))
    found = _noted(found, typed if asked.names else rest, held, facts)
    served = speed(facts.get("prefill"), "what runs now")
    return replace(found, prefill=found.prefill or served)


_OPTIONS = {
    "gpu_free_after": "--gpu-free-after",
    "gpu_free_before": "--gpu-free-before",
    "kv_tokens": "--gpu-tokens",
}
_HINT = "the least free memory over the ranks, as one start of these settings on these cards logs"
_FREE = ("gpu_free_before", "gpu_free_after")


def _parted(calibration: Any, names: frozenset[str]) -> tuple[Measured, Measured]:
    """What was typed, and what was written down. Free memory is one figure of two parts."""
    if not names:
        return Measured(), written(calibration)
    first = set(names)
    if first & set(_FREE):
        first |= {*_FREE, "weights"}
    parts = [
        {name: value for name, value in calibration.items() if (name in first) is wanted}
        for wanted in (True, False)
    ]
    return written(parts[0]), written(parts[1])


def _beside(typed: Measured, seen: Measured, what: str) -> Measured:
    """What of `seen` may stand beside free memory that was typed: what loading took there, if only
    one of its two parts was."""
    before, after, took = typed.free_before, typed.free_after, loaded(seen)
    if before is None and after is None:
        return seen
    kept = replace(seen, tokens=None, free_before=None, free_after=None, weights=None)
    if after is None:
        kept = replace(kept, weights=took)
    elif before is None and took is not None:
        kept = replace(kept, free_before=after + took, free_after=after)
    if (seen.tokens, seen.free_before, seen.free_after) == (None, None, None):
        return kept
    note = f"the figures of free GPU memory that were typed go before those of {what}"
    return replace(kept, notes=(*kept.notes, note))


def _credible(seen: Measured, held: Known, changed: tuple[str, ...]) -> Measured:
    """A journal's figures, unless they contradict what is known. Where its beginning is missing,
    nothing else tells what they are of."""
    why = contradiction(seen, held)
    if not why and CUT in seen.notes:
        if changed:
            why = f"{', '.join(changed)} was set, and the journal's beginning is missing"
        elif loaded(seen) is None or held.weights is None:
            why = "its beginning (server_args=) is missing, and no weights tell what it is of"
    if not why:
        return seen
    return Measured(notes=(f"the journal's figures were not used: {why}",))


def _of_these_settings(seen: Measured, retuned: tuple[str, ...]) -> Measured:
    """Without a number of tokens where the journal does not show all that it depends on: it is then
    taken to be of the description as it is written, and of nothing that was set over it."""
    if seen.tokens is None or seen.sure or not retuned:
        return seen
    note = (
        f"{', '.join(retuned)} was set, and the journal does not show what its number of tokens "
        "depends on: that was not used"
    )
    return replace(seen, tokens=None, notes=(*seen.notes, note))


def _owners(
    seen: Measured, held: Known, manifest: Mapping[str, Any], facts: Mapping[str, Any]
) -> Measured:
    """The owner's figures, unless they contradict what is known."""
    why = contradiction(seen, held)
    if not why and (other := of_other_start(seen, manifest, facts.get("starts") or ())):
        why = f"they are of an earlier start here with {other}"
    if not why:
        return seen
    return Measured(notes=(f"{NOT_USED}: {why}",))


def _noted(found: Measured, owner: Measured, held: Known, facts: Mapping[str, Any]) -> Measured:
    """With a note where much less was free than these cards have: nobody but the owner knows what
    will be on them."""
    before, total = owner.free_before, held.total
    if before is None or total is None or found.free_before != before:
        return found
    if before >= _SAME_CARD * (total - in_use(facts)):
        return found
    note = (
        f"{gib(before)} free before the weights are little for cards of {gib(total)}: the figures "
        "are of other cards, or of cards that something else is on"
    )
    return replace(found, notes=(*found.notes, note))


# Of what a card has free, a start finds more than this before its weights: the least that was seen
# is 0.93, of a card of 16 GB. A judgement.
_SAME_CARD = 0.85


def _of_these_cards(
    seen: Measured, manifest: Mapping[str, Any], facts: Mapping[str, Any]
) -> Measured:
    """A journal names no card: what was free before the weights tells whether it is of these. What
    loading took holds on any."""
    total, used = hostside.hardware(manifest, facts).total, in_use(facts)
    before = seen.free_before
    if total is None or before is None or _SAME_CARD * (total - used) <= before <= total:
        return seen
    note = (
        f"the journal is of other cards, or of cards that something else was on: {gib(before)} "
        f"were free before the weights, and these have {gib(total)}: its free memory and tokens "
        "were not used"
    )
    kept = replace(seen, tokens=None, free_before=None, free_after=None)
    if kept.weights is None and seen.free_after is not None:
        kept = replace(kept, weights=before - seen.free_after)
    return replace(kept, notes=(*seen.notes, note))


def in_use(facts: Mapping[str, Any]) -> int:
    """Most that is in use of a card now, by whomever."""
    return max((int(card.get("memory_used") or 0) for card in facts.get("gpus") or ()), default=0)


def written(calibration: Any) -> Measured:
    """What the owner wrote down, or typed."""
    get = calibration.get if isinstance(calibration, Mapping) else _getter(calibration)
    before, after, tokens = get("gpu_free_before"), get("gpu_free_after"), get("kv_tokens")
    weights = get("weights")  # where only what loading took holds for these settings
    if before is None and after is None and tokens is None and weights is None:
        return Measured()
    return Measured(tokens, before, after, weights, source=WRITTEN, sure=tokens is None)


def _getter(calibration: Any) -> Any:
    return lambda name: getattr(calibration, name, None)
