"""What of a Case the host pools depend on, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.forecast.device.settings import Settings, settings
from opsctl.forecast.host import versions
from opsctl.forecast.values import Case, NoForecast

RATIO, STAGING_RATIO = 2.0, 1.2  # hicache-ratio by default; in buffer_only mode
FRACTION = 0.8  # hicache-host-memory-fraction by default

# Another tree than the engine's own, with host memory of its own rules.
_FOREIGN = ("radix-cache-backend", "enable-lmcache", "enable-flexkv")
_TRUE = frozenset({"1", "true", "yes", "y", "t", "on"})


@dataclass(frozen=True, slots=True)
class Tier:
    """How the pools are sized: by `size` (GB) if above zero, else by `ratio`; `auto`: `ratio` is
    the most, and `fraction` of what is free bounds it."""

    set: Settings
    ratio: float
    size: float
    auto: bool
    fraction: float
    layout: str

    @property
    def key(self) -> tuple[int, ...]:
        return self.set.key


def tiered(flags: Mapping[str, Any]) -> bool:
    return bool(flags.get("enable-hierarchical-cache"))


def tier(case: Case) -> Tier:
    """Raises NoForecast for what is not computed here."""
    set_, flags = settings(case), case.flags
    for name in _FOREIGN:
        if flags.get(name):
            raise NoForecast(f"{name} is set: its own host memory is not forecast")
    if switched(case.env, "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE"):
        raise NoForecast("SGLANG_EXPERIMENTAL_CPP_RADIX_TREE is set: its host memory is not known")
    staging = flags.get("hicache-host-memory-mode") == "buffer_only"
    size = float(flags.get("hicache-size") or 0)
    asked = flags.get("hicache-ratio")
    fraction = flags.get("hicache-host-memory-fraction")
    auto = set_.key >= versions.AUTO and asked is None and size <= 0
    return Tier(
        set_,
        float(asked) if asked is not None else (STAGING_RATIO if staging else RATIO),
        size if size > 0 else 0.0,
        auto,
        FRACTION if fraction is None else float(fraction),
        layout(flags, set_.key),
    )


def switched(env: Mapping[str, str], name: str) -> bool:
    return bool(env) and env.get(name, "").lower() in _TRUE


def layout(flags: Mapping[str, Any], key: tuple[int, ...]) -> str:
    """hicache-mem-layout as the engine resolves it (server_args, _handle_hicache, all releases).
    It changes no size, but some pools refuse some layouts."""
    io = flags.get("hicache-io-backend") or "kernel"
    given = flags.get("hicache-mem-layout")
    found = str(given or ("page_first" if key >= versions.PAGE_FIRST else "layer_first"))
    if found == "page_first" and io == "direct":
        return "page_first_direct"
    if found == "layer_first" and flags.get("hicache-storage-backend") == "mooncake":
        return "page_first_direct" if io == "direct" else "page_first"
    return found
