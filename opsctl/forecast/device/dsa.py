"""DSA (DeepSeek sparse attention): the latent rows, their FP8 layouts, and the indexer's keys.

Sources: configs/model_config.py, mem_cache/memory_pool.py `NSATokenToKVPool` /
`DSATokenToKVPool`, `calculate_mla_kv_cache_dim`, `_compute_dsa_indexer_cell_size`; server_args.py
and arg_groups/overrides.py for the attention backends that the engine chooses.
"""

from __future__ import annotations

from bisect import bisect_left

from opsctl.forecast.device.dtype import FP8
from opsctl.forecast.device.hardware import capability
from opsctl.forecast.device.settings import Settings
from opsctl.forecast.values import Case, Indexer, Latent, NoForecast

_BLOCK = 128  # elements that share a scale of four bytes
COUNTED = (0, 5, 3, 1)  # the indexer is counted when tokens are sized
FIXED = (0, 5, 17)  # tokens are sized by the rows that are really allocated
SHARED = (0, 5, 18)  # layers that take over another's choice keep no keys


def index_bytes(indexer: Indexer) -> int:
    """Bytes of one token's key in one layer: FP8 with a scale a block."""
    return indexer.head_dim + indexer.head_dim // _BLOCK * 4


def index_layers(case: Case, set_: Settings, first: int, end: int) -> int:
    """Layers of a stage that keep index keys."""
    indexer = case.shape.indexer
    assert indexer is not None
    if set_.key < SHARED or not _shares(set_):
        return end - first
    return bisect_left(indexer.layers, end) - bisect_left(indexer.layers, first)  # in order


def _shares(set_: Settings) -> bool:
    """0.5.18 to 0.5.19 keep all layers' keys beside a host tier; later an external linker does."""
    flags = set_.flags
    if flags.get("enable-unified-cache-external-linker"):
        return False
    return set_.key >= (0, 5, 20) or not flags.get("enable-hierarchical-cache")


def row_elements(case: Case, set_: Settings, latent: Latent, dtype: tuple[str, int]) -> int:
    """Elements (bytes under FP8) of one allocated latent row.

    FP8 rows are either raw, or carry scales and keep their rotary part in bf16, by the backend.
    """
    raw = latent.rank + latent.rope
    if set_.key < (0, 5, 3):
        raise NoForecast(f"{case.version} does not know DSA")
    if dtype[0] != FP8 or _raw(case, set_):
        return raw
    return latent.rank + latent.rank // _BLOCK * 4 + latent.rope * 2


def row_share(case: Case, set_: Settings, dtype: tuple[str, int]) -> float:
    """Bytes of a token in one layer over those that tokens are sized by; 1.0 without DSA."""
    latent, indexer = case.shape.attention, case.shape.indexer
    if indexer is None or not isinstance(latent, Latent) or set_.key >= FIXED:
        return 1.0
    key = index_bytes(indexer)
    row = row_elements(case, set_, latent, dtype) * dtype[1]
    return (row + key) / ((latent.rank + latent.rope) * dtype[1] + key)


def _raw(case: Case, set_: Settings) -> bool:
    if case.hardware.vendor == "amd" and capability(case.hardware) != (9, 5):
        return True  # only gfx950 has the FP8 format that the scaled rows are made of
    if set_.key < (0, 5, 9):
        return False
    prefill, decode = backends(case, set_)
    if "trtllm" in (prefill, decode):
        return True
    if case.hardware.vendor == "amd":
        known = _raw_on_amd(set_.key)
        return prefill in known or decode in known
    return set_.key >= (0, 5, 22) and prefill == decode == "tilelang"


def _raw_on_amd(key: tuple[int, ...]) -> tuple[str, ...]:
    if key < (0, 5, 10):
        return ()
    if key < (0, 5, 14):
        return ("tilelang",)
    return ("tilelang", "aiter") if key < (0, 5, 20) else ("tilelang", "triton", "aiter")


def backends(case: Case, set_: Settings) -> tuple[str, str]:
    """(prefill, decode) under FP8, 0.5.9 on: as set, else as the engine chooses."""
    prefill, decode = (_given(set_, phase) for phase in ("prefill", "decode"))
    if prefill and decode:
        return prefill, decode
    if set_.key < (0, 5, 10):
        return prefill or "flashmla_auto", decode or "flashmla_kv"
    found = capability(case.hardware)
    if found is None:
        raise NoForecast(
            "the layout of a DSA model's FP8 rows depends on the card, which is not known here"
        )
    fallback = _fallback(case, set_, found[0], bool(prefill or decode))
    if isinstance(fallback, str):
        fallback = fallback, fallback
    if set_.key < (0, 5, 11) and "trtllm" in fallback:
        return fallback  # overrides what was set
    return prefill or fallback[0], decode or fallback[1]


def _given(set_: Settings, phase: str) -> str:
    flags = set_.flags
    return str(flags.get(f"dsa-{phase}-backend") or flags.get(f"nsa-{phase}-backend") or "")


def _fallback(case: Case, set_: Settings, major: int, any_given: bool) -> str | tuple[str, str]:
    key = set_.key
    if case.hardware.vendor == "amd":
        if key >= (0, 5, 20):
            return "triton"
        if not any_given:
            return "tilelang"
    if major == 12 and case.shape.architecture == "GlmMoeDsaForCausalLM" and key >= (0, 5, 17):
        return "flashinfer_sparse_mla"
    if major >= 10:
        return "trtllm"
    return ("flashmla_auto", "flashmla_kv") if key < (0, 5, 11) else "flashmla_kv"
