"""Tokens of a page of the KV cache."""

from __future__ import annotations

from opsctl.forecast.device.backend import attention
from opsctl.forecast.device.settings import Settings, settings
from opsctl.forecast.values import Case, Heads, NoForecast

# Attention backends whose page size is forced, or is not 1 if unset.
_FORCED = {"flashmla": 64, "cutlass_mla": 128, "hpc_ops": 64}
_ALLOWED = {
    "trtllm_mla": ((32, 64), 64),
    "cutedsl_mla": ((32, 64), 64),
    "trtllm_mha": ((16, 32, 64), 64),
}
_PLAIN = frozenset(
    {"triton", "flashinfer", "fa3", "torch_native", "flex_attention", "cpu", "aiter"}
)


def page(case: Case) -> int:
    """Raises NoForecast where the engine's own choice of a backend is not sure."""
    set_ = settings(case)
    return page_of(case, set_, attention(case, set_))


def assumed(case: Case) -> bool:
    """Whether nobody told what the cards are: then the page is that of most, and whoever shows
    figures says so. At most a page of tokens depends on it."""
    hardware = case.hardware
    told = any(hardware.cards) or hardware.capability is not None or hardware.vendor != "nvidia"
    return not told


def page_of(case: Case, set_: Settings, backends: tuple[str, str] | None) -> int:
    given = set_.flags.get("page-size")
    wanted = int(given) if given else None
    if case.shape.indexer is not None:
        return 1 if case.hardware.vendor == "amd" else 64
    if backends is None:
        if wanted in (32, 64):
            return wanted  # every backend that an unset choice may resolve to takes these
        if assumed(case):
            return wanted or 1
        raise NoForecast(
            "which attention backend this card gets is not known here: set page-size and "
            "attention-backend"
        )
    for backend in backends:
        if backend in _FORCED:
            return _FORCED[backend]
        if backend in _ALLOWED:
            allowed, fallback = _ALLOWED[backend]
            return wanted if wanted in allowed else fallback
        if backend == "fa4" and isinstance(case.shape.attention, Heads):
            return 128
        if backend not in _PLAIN and wanted is None:
            raise NoForecast(f"the page size of attention-backend {backend} is not known here")
    return wanted or 1
