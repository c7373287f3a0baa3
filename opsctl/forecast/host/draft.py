"""How the draft model's KV is kept in host memory.

Sources: `_maybe_register_hicache_draft` (scheduler.py 0.5.11 and 0.5.12, then
mem_cache/kv_cache_builder.py) and `_build_hicache_draft_plan` of speculative/base_spec_worker.py
(0.5.18+). FUSED needs unified memory, which is not forecast: device/settings.py refuses it.
"""

from __future__ import annotations

from opsctl.forecast.host import versions
from opsctl.forecast.host.model import Tier
from opsctl.forecast.values import Case, NoForecast

NONE, PACKED, SIDECAR = "none", "packed", "sidecar"

_WITHOUT_KV = frozenset({"", "NGRAM", "FROZEN_KV_MTP"})  # no draft, or none with KV of its own
_MTP = frozenset({"EAGLE", "NEXTN"})
_KNOWN = _MTP | {"EAGLE3", "STANDALONE"}


def plan(case: Case, tier: Tier, *, window: bool) -> str:
    """NONE, PACKED (layers in the target's rows) or SIDECAR (a pool of its own). `window`: the
    target has a sliding-window pool. Raises NoForecast where the rule is not sure."""
    algorithm = tier.set.algorithm
    if algorithm in _WITHOUT_KV or tier.key < versions.DRAFT:
        return NONE
    if algorithm not in _KNOWN:
        raise NoForecast(f"the host memory of speculative-algorithm {algorithm} is not forecast")
    if case.flags.get("enable-multi-layer-eagle"):
        raise NoForecast("the host memory of enable-multi-layer-eagle is not forecast")
    draft = case.draft
    if draft is None:
        raise NoForecast("the draft model's config.json is not known, and it takes host memory")
    if draft.window:
        raise NoForecast("the host memory of a draft with a sliding window is not forecast")
    if tier.key < versions.PACKED or algorithm not in _MTP or not draft.nextn:
        return SIDECAR
    if window:
        raise NoForecast("MTP layers in the host pools of a sliding-window model are not forecast")
    if len(draft.full) != 1:
        raise NoForecast(f"an MTP draft of {len(draft.full)} attention layers is not forecast")
    return PACKED
