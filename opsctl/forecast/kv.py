"""Geometry and flags → bytes per token, page size and number of tokens of the device's KV cache.

Sources: released packages 0.5.9 (model_executor/model_runner_kv_cache_mixin.py) and 0.5.23
(mem_cache/kv_cache_configurator.py, model_executor/pool_configurator.py). All per rank.
GiB = 2^30 bytes, and the engine's GPU log lines are GiB with two decimals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.forecast.geometry import Geometry, NoForecast
from opsctl.onhost.expect import GiB, version_key
from opsctl.onhost.learned import band

HALF_CENT = 0.005 * GiB  # rounding of a log line in GiB

_ONE_BYTE = {"fp8_e5m2", "fp8_e4m3"}
_TWO_BYTES = {"bf16", "bfloat16"}
_EAGLE = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"}

# Attention backends whose page size is not 1 if unset, or is forced (0.5.9 server_args.py,
# 0.5.23 arg_groups/overrides.py).
_FORCED_PAGE = {"flashmla": (64,), "cutlass_mla": (128,)}
_ALLOWED_PAGES = {"trtllm_mla": ((32, 64), 64), "trtllm_mha": ((16, 32, 64), 64)}
_PLAIN_BACKENDS = {"triton", "flashinfer", "fa3", "torch_native", "flex_attention"}
# Names of cards where an unset backend never resolves to one of the above: no SM 10.x.
_PLAIN_CARDS = (
    "RTX PRO",
    "RTX A",
    "RTX 6000",
    "RTX 5",
    "RTX 4",
    "RTX 3",
    "H100",
    "H200",
    "H20",
    "H800",
    "A100",
    "A800",
    "A40",
    "A30",
    "A10",
    "L40",
    "L20",
    "L4",
)
# Flags that change the sizes in ways that are not modelled here, with their harmless values.
_NOT_MODELLED: dict[str, tuple[Any, ...]] = {
    "attn-cp-size": (1,),
    "dcp-size": (1,),
    "enable-kv-cache-sharding": (False,),
    "enable-hisparse": (False,),
    "enable-unified-memory": (False,),
    "enable-double-sparsity": (False,),
    "enable-pdmux": (False,),
    "json-model-override-args": ("{}", {}),
    "disaggregation-mode": ("null",),
}


@dataclass(frozen=True)
class Tokens:
    """Tokens of one rank's pool. `least` and `most` None: not known on that side."""

    value: int | None
    least: int | None
    most: int | None
    basis: str  # measured, computed or estimated
    source: str  # where the figure comes from, for people


def refuse_unmodelled(flags: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Raises NoForecast for a flag or variable that makes the arithmetic here wrong."""
    for name, harmless in _NOT_MODELLED.items():
        if name in flags and flags[name] not in (None, *harmless):
            raise NoForecast(f"{name} is set, and its effect on memory is not forecast yet")
    if env.get("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "0").lower() in ("1", "true"):
        raise NoForecast("the KV cache is sized after the graphs, which is not forecast yet")
    if "SGLANG_PP_LAYER_PARTITION" in env:
        raise NoForecast("SGLANG_PP_LAYER_PARTITION splits the layers by hand")


def element(shape: Geometry, flags: Mapping[str, Any]) -> int:
    """Bytes of one KV element."""
    wanted = flags.get("kv-cache-dtype") or "auto"
    if wanted in _ONE_BYTE:
        return 1
    if wanted in _TWO_BYTES:
        return 2
    if wanted != "auto":
        raise NoForecast(f"kv-cache-dtype {wanted} is not forecast yet")
    if shape.kv_fp8 is None:
        raise NoForecast("config.json does not tell the KV cache's dtype: set kv-cache-dtype")
    if shape.kv_fp8:
        return 1
    if flags.get("dtype") in ("float", "float32"):
        return 4
    return shape.element


def attention_ranks(flags: Mapping[str, Any]) -> int:
    """Ranks that the KV heads are split over: tp, or tp/dp with DP attention (in 0.5.23 also
    spelled attn-dp-size)."""
    groups = int(flags.get("attn-dp-size") or 1)
    if flags.get("enable-dp-attention") and groups == 1:
        groups = int(flags.get("dp-size") or 1)
    return max(1, int(flags.get("tp-size") or 1) // groups)


def stage_layers(layers: int, flags: Mapping[str, Any]) -> int:
    """Layers of one pipeline stage. Stages of different sizes have different cells: refused."""
    stages = int(flags.get("pp-size") or 1)
    if layers % stages:
        raise NoForecast(f"{layers} layers do not divide into {stages} equal pipeline stages")
    return layers // stages


def cell(shape: Geometry, flags: Mapping[str, Any], version: str) -> int:
    """Bytes that one token takes on one rank.

    MLA is not split by tensor parallelism; KV heads are, down to one head a rank. Up to 0.5.6 K
    and V were both counted with head_dim.
    """
    layers, size = stage_layers(shape.layers, flags), element(shape, flags)
    if shape.kind == "mla":
        return shape.latent * layers * size
    heads = max(1, shape.kv_heads // attention_ranks(flags))
    both = shape.head_dim + shape.v_head_dim
    if version_key(version) < (0, 5, 7):
        both = 2 * shape.head_dim
    return heads * both * layers * size


def page(shape: Geometry, flags: Mapping[str, Any], cards: list[str]) -> int:
    """Tokens of a page. NoForecast where the engine's own choice of backend is not sure."""
    chosen = {
        str(flags[name])
        for name in ("attention-backend", "prefill-attention-backend", "decode-attention-backend")
        if flags.get(name)
    }
    wanted = int(flags["page-size"]) if flags.get("page-size") else None
    for backend in sorted(chosen):
        if backend in _FORCED_PAGE:
            return _FORCED_PAGE[backend][0]
        if backend in _ALLOWED_PAGES:
            allowed, fallback = _ALLOWED_PAGES[backend]
            return wanted if wanted in allowed else fallback
        if backend == "fa4" and shape.kind == "mha":
            return 128
        if backend not in _PLAIN_BACKENDS and wanted is None:
            raise NoForecast(f"the page size of attention-backend {backend} is not known here")
    if chosen or flags.get("device") == "cpu" or _plain(cards):
        return wanted or 1
    if wanted is not None and wanted in (32, 64):
        return wanted  # every backend that an unset choice may resolve to takes these
    raise NoForecast(
        "which attention backend this card gets is not known here: set page-size and "
        "attention-backend"
    )


def _plain(cards: list[str]) -> bool:
    return bool(cards) and all(any(name in card for name in _PLAIN_CARDS) for card in cards)


def charged(
    bytes_per_token: int,
    shape: Geometry,
    flags: Mapping[str, Any],
    version: str,
    draft_layers: int | None,
) -> int:
    """Bytes per token that the engine divides by: from 0.5.14 on the draft's KV is counted in,
    with as many layers as the draft has, each as large as a layer of the target."""
    algorithm = str(flags.get("speculative-algorithm") or "")
    if not algorithm or algorithm == "NGRAM" or version_key(version) < (0, 5, 14):
        return bytes_per_token
    if algorithm not in _EAGLE:
        raise NoForecast(f"the KV of speculative-algorithm {algorithm} is not forecast yet")
    if draft_layers is None:
        raise NoForecast("the draft model's config.json is not known")
    layers = stage_layers(shape.layers, flags)
    return bytes_per_token + int(bytes_per_token * draft_layers / layers)


def multimodal_reserve(
    shape: Geometry, flags: Mapping[str, Any], env: Mapping[str, str], version: str
) -> tuple[int, int]:
    """Bytes that 0.5.18+ keeps back for images, and by how much more it may be.

    SGLANG_VLM_CACHE_SIZE_MB (100), and SGLANG_MM_FEATURE_CACHE_MB (1024) if features travel by
    CUDA; left unset, the engine decides that by itself.
    """
    if not shape.multimodal or version_key(version) < (0, 5, 18):
        return 0, 0
    images = int(env.get("SGLANG_VLM_CACHE_SIZE_MB", "100")) << 20
    features = int(env.get("SGLANG_MM_FEATURE_CACHE_MB", "1024")) << 20
    transport = flags.get("mm-feature-transport")
    if transport in ("cuda_ipc", "cuda_vmm"):
        return images + features, 0
    return images, 0 if transport == "cpu" else features


def from_free_memory(
    before: float,
    after: float,
    fraction: float,
    divisor: int,
    *,
    reserve: int = 0,
    doubt: int = 0,
) -> Tokens:
    """Tokens from the least free GPU memory before and after the weights, in bytes.

    rest = after − before × (1 − fraction) − reserve: the reserve is a share of what was free
    before the weights, not of the card's nominal size. Both figures are rounded to hundredths of
    a GiB, hence the band; the reserve may be larger by `doubt`.
    """
    rest = after - before * (1 - fraction) - reserve
    band = HALF_CENT * (1 + (1 - fraction))
    if rest + band <= 0:
        raise NoForecast("the weights leave no GPU memory for the KV cache: the start would fail")
    return Tokens(
        max(0, math.floor(rest / divisor)),
        max(0, math.floor((rest - band - doubt) / divisor)),
        math.floor((rest + band) / divisor),
        "computed",
        "GPU memory free before and after the weights",
    )


def measured(tokens: int, divisor: int, source: str) -> Tokens:
    """What an earlier start with the same GPU settings logged, give or take learned.DRIFT."""
    return Tokens(tokens, *band(tokens, divisor), "measured", source)


def capped(found: Tokens, flags: Mapping[str, Any], page_size: int) -> Tokens:
    """max-total-tokens cuts down, then whole pages."""
    limit = flags.get("max-total-tokens")

    def cut(tokens: int | None) -> int | None:
        if tokens is None:
            return None
        tokens = min(tokens, int(limit)) if limit else tokens
        return tokens // page_size * page_size

    most = cut(int(limit)) if limit and found.most is None else cut(found.most)
    value = most if found.value is None else cut(found.value)
    return Tokens(value, cut(found.least), most, found.basis, found.source)
