"""What the engine does not start with: "" or why, by name of the version.

Sources: HiRadixCache.__init__ (every release up to 0.5.18), managers/scheduler.py up to 0.5.12 and
mem_cache/registry.py after it, MambaPoolHost.__init__, arg_groups/hicache_hook.py.
"""

from __future__ import annotations

from opsctl.forecast.host import versions
from opsctl.forecast.host.model import Tier, switched
from opsctl.forecast.values import Case

UNIFIED = "SGLANG_ENABLE_UNIFIED_RADIX_TREE"


def refusal(case: Case, tier: Tier, *, window: bool, state: bool) -> str:
    """`window`, `state`: whether the device has a sliding-window pool, and recurrent state."""
    version, flags = case.version, case.flags
    if flags.get("disable-radix-cache"):
        return f"{version} refuses enable-hierarchical-cache with disable-radix-cache"
    staging = flags.get("hicache-host-memory-mode") == "buffer_only"
    if staging and not flags.get("hicache-storage-backend"):
        return f"{version} refuses hicache-host-memory-mode buffer_only without a storage backend"
    if tier.auto and not 0 < tier.fraction <= 1:
        return f"{version} refuses hicache-host-memory-fraction {tier.fraction:g}: 0 to 1"
    if window:
        return _window(case, tier)
    return _state(version, tier) if state else ""


def _window(case: Case, tier: Tier) -> str:
    if tier.key >= versions.SWA:
        return ""
    if tier.key >= versions.SWA_BY_ENV and switched(case.env, UNIFIED):
        return ""
    return f"{case.version} refuses the host tier for models with a sliding window " + (
        f"unless {UNIFIED}=1 is set" if tier.key >= versions.SWA_BY_ENV else "of their own pool"
    )


def _state(version: str, tier: Tier) -> str:
    if tier.key < versions.MAMBA:
        return f"{version} refuses the host tier for models with recurrent state"
    if tier.key < versions.MAMBA_DIRECT:
        return ""
    allowed: tuple[str, ...] = ("page_first_direct",)
    if tier.key >= versions.MAMBA_PAGE_FIRST:
        allowed = ("page_first_direct", "page_first")
    if tier.layout in allowed:
        return ""
    return (
        f"{version} refuses hicache-mem-layout {tier.layout} for models with recurrent state: "
        f"{' or '.join(allowed)}"
    )
