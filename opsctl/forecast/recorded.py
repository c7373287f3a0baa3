"""Starts that were recorded on a host → what of them holds for a release there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsctl.forecast import carried
from opsctl.forecast.figures import after_weights, agreed, least, most, pinned
from opsctl.forecast.values import Earlier, Measured
from opsctl.onhost.expect import version_key
from opsctl.onhost.learned import RECORDED, recorded_tokens

LIKE = "an earlier start here of the same model, version and parallelism"
SIZES = (
    "tp-size",
    "pp-size",
    "dp-size",
    "ep-size",
    "attn-dp-size",
    "nnodes",
    "enable-dp-attention",
)


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
        found = filled(found, _without_gpus(older))
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


def filled(first: Measured, second: Measured) -> Measured:
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
