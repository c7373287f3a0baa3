"""The best that is known by measurement: earlier starts here, a journal, the owner's figures.

An earlier start replaces estimates only where its figures hold for these settings: forecast/
carried.py says which settings matter. Figures of two sources are mixed only where they do not
depend on each other: memory before and after the weights come from one and the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsctl.errors import Refused
from opsctl.forecast import carried, hostside
from opsctl.forecast.credible import NOTHING, Known, contradiction, loaded, of_other_start
from opsctl.forecast.figures import after_weights, agreed, least, most, pinned, speed
from opsctl.forecast.values import CUT, Earlier, Measured
from opsctl.onhost.expect import gib, version_key
from opsctl.onhost.learned import RECORDED, recorded_tokens

__all__ = ["measured"]

LIKE = "an earlier start here of the same model, version and parallelism"
WRITTEN = "the owner's figures"
# The beginning of a note.
NOT_USED = "the owner's figures (memory.calibration) were not used"
SIZES = (
    "tp-size",
    "pp-size",
    "dp-size",
    "ep-size",
    "attn-dp-size",
    "nnodes",
    "enable-dp-attention",
)


@dataclass(frozen=True, slots=True)
class Typed:
    """What an operator asked with. `names`: keys of the figures that were typed, which go before
    all others; `size`: model.size, bytes; `changed`: settings that were set over the description
    and may change the weights."""

    names: frozenset[str] = frozenset()
    size: int | None = None
    changed: tuple[str, ...] = ()


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
        found = replace(_filled(typed, beside), earlier=found.earlier)
    if journal:
        from opsctl.forecast.journalled import (
            from_journal,
        )  # its patterns cost more than a forecast

        seen = _of_these_cards(from_journal(journal, manifest), manifest, facts)
        seen = _credible(seen, held, asked.changed)
        found = _filled(found, _beside(typed, seen, "the journal"))
    found = _filled(found, _owners(rest, held, manifest, facts))
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


def _filled(first: Measured, second: Measured) -> Measured:
    """`first`, and from `second` what it lacks. Free memory is one figure of two parts: where
    `first` has both, none is taken."""
    whole = first.free_before is not None and first.free_after is not None
    changed: dict[str, Any] = {}
    if not whole and (second.free_before is not None or second.free_after is not None):
        both = second.free_before is not None and second.free_after is not None
        for name in ("free_before", "free_after"):
            value = getattr(second, name)
            if both or getattr(first, name) is None:
                changed[name] = value if value is not None else getattr(first, name)
        changed["exact"] = second.exact and first.exact
    if first.tokens is None and second.tokens is not None:
        changed["sure"] = second.sure
    for name in ("tokens", "weights", "draft_weights", "process", "prefill"):
        if getattr(first, name) is None and getattr(second, name) is not None:
            changed[name] = getattr(second, name)
    if not first.seconds and second.seconds:
        changed["seconds"], changed["cached"] = second.seconds, second.cached
        changed["kernels"], changed["pinned"] = second.kernels, second.pinned
    if not changed:
        return replace(first, notes=(*first.notes, *second.notes))
    told = [text for text in (first.source, second.source) if text]
    return replace(first, **changed, source="; ".join(told), notes=(*first.notes, *second.notes))


# -- recorded starts ------------------------------------------------------------------------------


def recorded(manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> Measured:
    """The newest start with the same gpu_key; else the newest of the same model, version and
    parallelism whose other settings leave free memory alone; else nothing. What it does not tell
    of its processes and times (nobody looked: it was taken over, or its guard died) is that of the
    newest such start that does."""
    found = _newest(manifest, starts)
    if found is None:
        return Measured()
    for start in (one for one in starts if _alike(manifest, one)):
        if found.process is not None and found.seconds:
            break
        older = _figures(manifest, start, "")
        found = _filled(found, _without_gpus(older))
    return replace(found, earlier=_earlier(manifest, starts))


def _earlier(
    manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]
) -> tuple[Earlier, ...]:
    """Times of all starts with the same gpu_key; of related ones where there is none."""
    same = [one for one in starts if one.get("gpu_key") == manifest.get("gpu_key")]
    timed = [_times(one) for one in same if one.get("seconds")]
    return tuple(
        timed or (_times(one) for one in starts if one.get("seconds") and _related(manifest, one))
    )


def _times(start: Mapping[str, Any]) -> Earlier:
    return Earlier(
        dict(start["seconds"]),
        start.get("cached"),
        start.get("kernels"),
        pinned((start.get("ranks") or {}).values()),
    )


def _without_gpus(seen: Measured) -> Measured:
    return replace(
        seen, tokens=None, free_before=None, free_after=None, weights=None, draft_weights=None
    )


def _newest(manifest: Mapping[str, Any], starts: Sequence[Mapping[str, Any]]) -> Measured | None:
    tokens = recorded_tokens(manifest, starts)
    for start in starts:
        if tokens is not None and start.get("gpu_key") == manifest.get("gpu_key"):
            found = _figures(manifest, start, RECORDED)
            if found.tokens == tokens:
                return found
    for start in starts:
        if _related(manifest, start):
            return _carried(manifest, start)
    return None


def _alike(manifest: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
    return start.get("gpu_key") == manifest.get("gpu_key") or _related(manifest, start)


def _related(manifest: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
    """Same model, version, ranks and cards. Records of earlier releases of opsctl lack flags."""
    flags = start.get("flags")
    return (
        isinstance(flags, Mapping)
        and (start.get("model") or {}).get("path") == manifest["model"]["path"]
        and start.get("engine_version") == manifest["engine"]["version"]
        and start.get("gpus") == manifest.get("gpus")
        and set(manifest["ranks"]) <= set(start.get("ranks") or {})
        and all(flags.get(name) == manifest["flags"].get(name) for name in SIZES)
    )


def _carried(manifest: Mapping[str, Any], start: Mapping[str, Any]) -> Measured:
    """What of a related start holds for other settings."""
    found, notes = _figures(manifest, start, LIKE), []
    old, new = start["flags"], manifest["flags"]
    env, new_env = start.get("env") or {}, manifest.get("env") or {}
    changed = carried.changes(old, new, env, new_env)
    if changed or carried.token_changes(old, new) or carried.draft_changes(old, new):
        found = replace(found, tokens=None)
    if changed:
        notes.append(
            f"{', '.join(changed)} changed since the earlier start: its free GPU memory and "
            "weights were not used"
        )
        found = replace(found, free_before=None, free_after=None, weights=None)
    if carried.draft_changes(old, new):
        found = replace(found, draft_weights=None)
        if version_key(str(manifest["engine"]["version"])) >= carried.DRAFT_FIRST:
            found = replace(found, free_after=None)
    return replace(found, notes=tuple(notes))


def _figures(manifest: Mapping[str, Any], start: Mapping[str, Any], source: str) -> Measured:
    ranks = [(start.get("ranks") or {}).get(name) or {} for name in manifest["ranks"]]
    first = version_key(str(manifest["engine"]["version"])) >= carried.DRAFT_FIRST
    return Measured(
        tokens=agreed(rank.get("kv_tokens") for rank in ranks),
        free_before=least(rank.get("free_before_weights") for rank in ranks),
        free_after=least(after_weights(rank, first) for rank in ranks),
        weights=most(rank.get("weights_bytes") for rank in ranks),
        draft_weights=most((rank.get("draft") or {}).get("weights_bytes") for rank in ranks),
        process=start.get("process"),
        seconds=dict(start.get("seconds") or {}),
        cached=start.get("cached"),
        kernels=start.get("kernels"),
        pinned=pinned((start.get("ranks") or {}).values()),
        source=source,
    )
