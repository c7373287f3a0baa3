"""Tokens of a page of the KV cache.

Sources: as backend.py; `_handle_page_size`, `_mla_backend_page_constraints`,
layers/attention/dsa/utils.py `aiter_can_use_preshuffle_paged_mqa`.
"""

from __future__ import annotations

from opsctl.engine.rules import shared
from opsctl.forecast.device.backend import GDN, attention
from opsctl.forecast.device.hardware import capability, unknown_card
from opsctl.forecast.device.recurrent import no_radix
from opsctl.forecast.device.settings import Settings, on, settings
from opsctl.forecast.values import Case, Heads, NoForecast

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
    wanted = int(given) if given else 1
    if case.shape.indexer is not None:
        return _sparse(case, set_)
    if case.shape.linear and _one_for_state(case, set_):
        return 1
    if backends is None:
        if wanted in (32, 64):
            return wanted  # every backend that an unset choice may resolve to takes these
        if assumed(case):
            return wanted
        card = unknown_card(case.hardware)
        raise NoForecast(
            f"{card}: set page-size and attention-backend, or another name"
            if card
            else "which attention backend this card gets is not known here: set page-size and "
            "attention-backend"
        )
    if _forced_by_model(case, set_):
        return 64 if "trtllm_mha" in backends else 1
    if _fa4_forces(case, set_, backends):
        return 128
    for backend in backends:
        decodes = backend in (backends[1], set_.flags.get("attention-backend"))
        if backend in shared.DECODING and not decodes:
            continue
        if shared.pages(backend, set_.key):
            return shared.page(backend, wanted, set_.key)
        if backend not in _PLAIN and backend != "fa4" and not given:
            raise NoForecast(f"the page size of attention-backend {backend} is not known here")
    return wanted


def _fa4_forces(case: Case, set_: Settings, backends: tuple[str, str]) -> bool:
    if not isinstance(case.shape.attention, Heads):
        return False
    if not shared.fa4_asked(set_.flags, set_.key, *backends):
        return False
    found = capability(case.hardware)
    forces = shared.fa4_on(None if found is None else found[0], set_.key)
    if forces is None:
        raise NoForecast("fa4 has pages of 128 tokens on SM 10 only: name the card, or page-size")
    return forces


def _sparse(case: Case, set_: Settings) -> int:
    """DSA: 64 whatever the flag says; from 0.5.8 on 1 on AMD unless aiter has faster kernels."""
    if case.hardware.vendor != "amd" or set_.key < (0, 5, 8):
        return 64
    env = set_.env
    if set_.key < (0, 5, 12) or not on(env.get("SGLANG_USE_AITER")):
        return 1
    if on(env.get("SGLANG_DSA_HIP_DISABLE_PRESHUFFLE")):
        return 1
    if on(env.get("AITER_ENABLE_AOT_GLUON_PA_MQA_LOGITS")):
        return 64
    raise NoForecast("whether DSA's pages have 1 or 64 tokens depends on the host's Triton here")


def _one_for_state(case: Case, set_: Settings) -> bool:
    """0.5.11 to 0.5.13 keep prefixes of recurrent models token by token."""
    if not (0, 5, 11) <= set_.key < (0, 5, 14) or no_radix(case, set_, None):
        return False
    flags = set_.flags
    strategy = flags.get("mamba-radix-cache-strategy") or flags.get("mamba-scheduler-strategy")
    return strategy not in ("extra_buffer", "extra_buffer_lazy")


def _forced_by_model(case: Case, set_: Settings) -> bool:
    """GDN hybrids on SM 10 from 0.5.10 on, where the engine chooses the backend."""
    if case.shape.architecture not in GDN or set_.key < (0, 5, 10):
        return False
    found = capability(case.hardware)
    return found is not None and found[0] == 10 and not set_.flags.get("attention-backend")
