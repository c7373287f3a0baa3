"""The owner's figures (memory.calibration, --gpu-free-*, --gpu-tokens) under other settings.

They are of the description as it is written: what is set over it (--set, a variant of --compare,
one host's overrides) can make them wrong, as it makes those of an earlier start wrong
(forecast/carried.py). A figure that somebody wrote together with a change is of that change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.forecast import carried
from opsctl.onhost.expect import version_key
from opsctl.release.kinds import gpu_key
from opsctl.release.manifest import outline
from opsctl.spec.models import Service

__all__ = ["after_the_draft", "alike", "held", "of_description", "written"]

AFTER, BEFORE, TOKENS, WEIGHTS = "gpu_free_after", "gpu_free_before", "kv_tokens", "weights"
_MEMORY = (BEFORE, AFTER)


def written(service: Service) -> dict[str, int]:
    """memory.calibration of a description; only what is written."""
    found = service.memory.calibration.model_dump()
    return {name: int(value) for name, value in found.items() if value is not None}


def of_description(
    name: str, service: Service, first: Service | None, manifest: Mapping[str, Any]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """What of the figures that are written in a description holds for `manifest`, and what must be
    told. `first`: the description before anything was set over it, None if nothing was."""
    known = written(service)
    if first is None or not known:
        return known, ()
    as_was, was = written(first), outline(name, first)
    if known.get(TOKENS) == as_was.get(TOKENS) and not alike(was, manifest):
        known.pop(TOKENS, None)
    if any(known.get(figure) != as_was.get(figure) for figure in _MEMORY):
        return known, ()  # they were set as well, and are of what was set
    return held(known, was, manifest)


# The tier may change the attention backend and its buffers, but not what is left for KV: that is
# divided before any backend is made.
_TIER = ("enable-hierarchical-cache", "hicache-io-backend", "hicache-mem-layout")


def alike(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether two manifests get the same number of tokens from the same GPUs."""
    return _key(one) == _key(two)


def _key(manifest: Mapping[str, Any]) -> str:
    flags = {k: v for k, v in manifest["flags"].items() if k not in _TIER}
    version, path = manifest["engine"]["version"], manifest["model"]["path"]
    return gpu_key(version, path, _cards(manifest), flags, manifest["env"])


def held(
    figures: Mapping[str, int], base: Mapping[str, Any], manifest: Mapping[str, Any]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """What of `figures`, which are of the manifest `base`, holds for `manifest`; and for people,
    what was left out and why. Tokens are the caller's to judge, unless the memory goes too."""
    found, notes = dict(figures), list[str]()
    if not found:
        return found, ()
    old, new = base["flags"], manifest["flags"]
    changed = carried.changes(old, new, base.get("env") or {}, manifest.get("env") or {})
    words = [f"{name} {_shown(_value(base, name))}" for name in changed]
    if base["model"]["path"] != manifest["model"]["path"]:
        words.insert(0, f"the model {base['model']['path']}")
    if _cards(base) != _cards(manifest):
        words.append(f"{_cards(base) or 'all'} GPUs")
    if words:
        notes.append(
            f"the owner's figures of GPU memory are of {', '.join(words)}, as described: they were "
            "not used for other settings"
        )
        return {}, tuple(notes)
    if base["engine"]["version"] != manifest["engine"]["version"]:
        notes += _of_version(found, base, manifest)
    elif _drafts_first(manifest) and AFTER in found and carried.draft_changes(old, new):
        del found[AFTER]
        notes.append(
            f"{', '.join(carried.draft_changes(old, new))} changed: the owner's figure of free GPU "
            "memory after the weights, which holds a draft too since 0.5.14, was not used"
        )
    return found, tuple(notes)


def _of_version(
    found: dict[str, int], base: Mapping[str, Any], manifest: Mapping[str, Any]
) -> list[str]:
    old, new = str(base["engine"]["version"]), str(manifest["engine"]["version"])
    if not any(name in found for name in _MEMORY):
        return []
    notes = [f"the owner's figures of GPU memory are of {old}, and were taken for {new} too"]
    if _drafted(base) == _drafted(manifest) == "" or _drafts_first(base) == _drafts_first(manifest):
        return notes
    before, after = found.get(BEFORE), found.pop(AFTER, None)
    if after is None:
        return notes
    if before is not None and not _drafts_first(base):
        found[WEIGHTS] = before - after
    return [
        *notes,
        "from 0.5.14 on the draft is loaded before the pools are sized: free memory after the "
        f"weights is another figure in {new} than in {old}, and was not used",
    ]


def _drafted(manifest: Mapping[str, Any]) -> str:
    algorithm = str(manifest["flags"].get("speculative-algorithm") or "").upper()
    return "" if algorithm == "NGRAM" else algorithm


def _drafts_first(manifest: Mapping[str, Any]) -> bool:
    return version_key(str(manifest["engine"]["version"])) >= carried.DRAFT_FIRST


def after_the_draft(figures: Mapping[str, int], manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader of a log has to know of its two lines, if there are two."""
    if AFTER not in figures or not _drafted(manifest) or not _drafts_first(manifest):
        return ()
    return (
        "free GPU memory after the weights is that after the draft's load in this version: of two "
        'lines "Load weight end" of a rank, the second',
    )


def _cards(manifest: Mapping[str, Any]) -> int | None:
    gpus = manifest.get("gpus")
    return None if gpus is None else len(gpus)


def _value(manifest: Mapping[str, Any], name: str) -> Any:
    if name.startswith("env."):
        return (manifest.get("env") or {}).get(name.removeprefix("env."))
    return manifest["flags"].get(name)


def _shown(value: Any) -> str:
    return "unset" if value is None else str(value)
