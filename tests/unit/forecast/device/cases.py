"""Models by hand and a Case around them, for the tests of this folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opsctl.forecast.values import (
    Case,
    Figure,
    Geometry,
    Hardware,
    Heads,
    Indexer,
    Latent,
    Measured,
    State,
)

GiB = 1 << 30
MiB = 1 << 20
EAGLE = {
    "speculative-algorithm": "EAGLE",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
}
CARDS = {  # MiB that nvidia-smi or amd-smi shows, compute capability, vendor
    "4090": (24564, (8, 9), "nvidia"),
    "l40s": (46068, (8, 9), "nvidia"),
    "h100": (81559, (9, 0), "nvidia"),
    "rtxpro": (97887, (12, 0), "nvidia"),
    "h200": (143771, (9, 0), "nvidia"),
    "b200": (183359, (10, 0), "nvidia"),
    "mi355x": (294896, (9, 5), "amd"),
}


def mla(layers: int = 61, **more: Any) -> Geometry:
    made = Geometry(
        "DeepseekV3ForCausalLM",
        layers,
        Latent(512, 64),
        tuple(range(layers)),
        q_heads=128,
        context=163840,
    )
    return replace(made, **more)


def dsa(layers: int = 78, name: str = "GlmMoeDsaForCausalLM", **more: Any) -> Geometry:
    made = mla(layers, architecture=name, indexer=Indexer(128, tuple(range(layers))))
    return replace(made, **more)


def gqa(layers: int, heads: int, size: int, **more: Any) -> Geometry:
    made = Geometry(
        "LlamaForCausalLM",
        layers,
        Heads(heads, size, size),
        tuple(range(layers)),
        context=131072,
    )
    return replace(made, **more)


def windowed(full: Heads, swa: Heads, every: int, layers: int, **more: Any) -> Geometry:
    """Every `every`-th layer is full, the others have a window of 128 tokens."""
    kept = tuple(n for n in range(layers) if (n + 1) % every == 0)
    made = Geometry(
        "GptOssForCausalLM",
        layers,
        full,
        kept,
        window=tuple(n for n in range(layers) if n not in kept),
        window_attention=None if swa == full else swa,
        window_tokens=128,
        context=131072,
    )
    return replace(made, **more)


def qwen35(**more: Any) -> Geometry:
    """Qwen3.5-27B: 64 layers, every fourth with attention."""
    full = tuple(n for n in range(64) if n % 4 == 3)
    made = Geometry(
        "Qwen3_5ForConditionalGeneration",
        64,
        Heads(4, 256, 256),
        full,
        linear=tuple(n for n in range(64) if n % 4 != 3),
        state=State("gdn", (48, 128, 128), ((2 * 16 * 128 + 48 * 128, 3),), 16),
        context=262144,
    )
    return replace(made, **more)


def case(
    shape: Geometry,
    version: str = "0.5.9",
    *,
    before: float | None = 94.05,
    after: float | None = 21.71,
    card: str = "rtxpro",
    draft: Geometry | None = None,
    env: dict[str, str] | None = None,
    exact: bool = False,
    tokens: int | None = None,
    weights: Figure | None = None,
    draft_weights: Figure | None = None,
    ranks: tuple[str, ...] = ("TP0",),
    total: bool = True,
    **flags: Any,
) -> Case:
    """`before` and `after`: GiB. Flags with _ for -; mem-fraction-static is 0.88 if not given,
    and left unset by None."""
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    named.setdefault("mem-fraction-static", 0.88)
    named = {name: value for name, value in named.items() if value is not None}
    mib, capability, vendor = CARDS[card]
    return Case(
        version,
        named,
        env or {},
        ranks,
        shape,
        draft,
        Hardware(8, (card,), mib * MiB if total else None, capability, vendor),
        None,
        Measured(
            tokens=tokens,
            free_before=None if before is None else round(before * GiB),
            free_after=None if after is None else round(after * GiB),
            exact=exact,
            source="an earlier start",
        ),
        weights,
        draft_weights,
        0,
    )
