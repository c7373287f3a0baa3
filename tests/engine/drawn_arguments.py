"""Arguments drawn by a fixed seed, for what nobody thought of: mostly such as people combine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from opsctl.engine import catalogue

ON = (True,)
BACKENDS = ("triton", "flashinfer", "fa3", "fa4", "flashmla", "trtllm_mla", "trtllm_mha",
            "cutlass_mla", "torch_native", "flex_attention")  # fmt: skip
FLAGS: dict[str, tuple[Any, ...]] = {
    "attention-backend": BACKENDS,
    "prefill-attention-backend": ("triton", "flashinfer", "fa3", "fa4"),
    "decode-attention-backend": ("triton", "flashinfer", "fa3", "flashmla", "trtllm_mla"),
    "page-size": (1, 16, 32, 64, 128),
    "kv-cache-dtype": ("auto", "fp8_e4m3", "fp8_e5m2", "bf16"),
    "chunked-prefill-size": (-1, 2048, 4096, 16384),
    "max-running-requests": (8, 100, 1024),
    "max-total-tokens": (100_000,),
    "context-length": (4096, 8192, 32768),
    "mem-fraction-static": (0.7, 0.9),
    "disable-cuda-graph": ON,
    "disable-piecewise-cuda-graph": ON,
    "enable-piecewise-cuda-graph": ON,
    "disable-prefill-cuda-graph": ON,
    "cuda-graph-max-bs": (4, 64, 256),
    "cuda-graph-max-bs-decode": (4, 64, 256),
    "cuda-graph-max-bs-prefill": (1024, 8192),
    "cuda-graph-bs": ([1, 2, 4, 8],),
    "cuda-graph-bs-decode": ([1, 2, 4, 8],),
    "cuda-graph-bs-prefill": ([64, 512],),
    "enable-torch-compile": ON,
    "enable-hierarchical-cache": ON,
    "hicache-io-backend": ("kernel", "direct"),
    "hicache-mem-layout": ("layer_first", "page_first", "page_first_direct"),
    "hicache-ratio": (2.0,),
    "disable-radix-cache": ON,
    "enable-deterministic-inference": ON,
    "enable-mixed-chunk": ON,
    "disable-overlap-schedule": ON,
    "moe-runner-backend": ("triton", "flashinfer_cutlass", "flashinfer_trtllm", "deep_gemm"),
    "moe-a2a-backend": ("none", "deepep", "mooncake"),
    "ep-size": (2, 8),
    "enable-two-batch-overlap": ON,
    "enable-eplb": ON,
    "moe-dense-tp-size": (1,),
    "enable-dp-lm-head": ON,
    "quantization": ("fp8", "w8a8_int8"),
    "disable-shared-experts-fusion": ON,
    "enable-symm-mem": ON,
    "mamba-scheduler-strategy": ("no_buffer", "extra_buffer"),
    "mamba-radix-cache-strategy": ("no_buffer", "extra_buffer"),
    "swa-full-tokens-ratio": (0.5,),
    "language-only": ON,
    "skip-server-warmup": ON,
}
SPECULATION: tuple[dict[str, Any], ...] = (
    {},
    {"speculative-num-steps": 3, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4},
    {"speculative-num-steps": 2, "speculative-eagle-topk": 4, "speculative-num-draft-tokens": 8},
    {"speculative-num-steps": 5, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 4},
)
ALGORITHMS = ("EAGLE", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
PARALLEL: tuple[dict[str, Any], ...] = (
    {"tp-size": 1},
    {"tp-size": 2},
    {"tp-size": 4},
    {"tp-size": 8},
    {"tp-size": 4, "pp-size": 2},
    {"tp-size": 8, "dp-size": 8, "enable-dp-attention": True},
    {"tp-size": 8, "dp-size": 2, "enable-dp-attention": True},
)


def drawn(count: int, version: str, seed: int = 20) -> Iterator[dict[str, Any]]:
    """`count` sets of flags that this version's parser has."""
    known, dice = catalogue(version).flags, random.Random(seed)
    names = [name for name in FLAGS if name in known]
    for _ in range(count):
        flags = dict(dice.choice(PARALLEL))
        flags |= {name: dice.choice(FLAGS[name]) for name in dice.sample(names, dice.randint(1, 4))}
        if dice.random() < 0.4:
            flags["speculative-algorithm"] = dice.choice(ALGORITHMS)
            flags |= dice.choice(SPECULATION)
        yield flags


def arguments(flags: dict[str, Any]) -> dict[str, Any]:
    """By the names that ServerArgs has for them."""
    return {name.replace("-", "_"): value for name, value in flags.items()}
