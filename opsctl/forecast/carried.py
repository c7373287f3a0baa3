"""Which settings may differ between a start and the next without changing what it measured.

Free GPU memory before and after the weights is read before any pool is sized, so whatever only
shapes pools, graphs or serving leaves it alone. The rule is as in release/kinds.py: everything
counts, except what is listed here with its reason. Read in ModelRunner.initialize and Scheduler.
init_model_worker of 0.5.2 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.release.kinds import ENV_NOT_ON_GPU, NOT_ON_GPU

POOLS = "divides what is free after the weights"
TIER = "the host tier stands behind the GPU's pools"
GRAPHS = "graphs are captured after the pools are sized"
BATCHES = "shapes what is allocated while serving"
TOKENS = "works on text or single tokens"

AFTER_WEIGHTS: dict[str, str] = {
    "mem-fraction-static": POOLS,
    "max-total-tokens": POOLS,
    "max-running-requests": POOLS,
    "max-mamba-cache-size": POOLS,
    "mamba-full-memory-ratio": POOLS,
    "mamba-ssm-dtype": POOLS,
    "swa-full-tokens-ratio": POOLS,
    "disable-hybrid-swa-memory": POOLS,
    "kv-cache-dtype": POOLS,
    "page-size": POOLS,
    "context-length": POOLS,
    "disable-radix-cache": POOLS,
    "radix-eviction-policy": POOLS,
    "enable-hierarchical-cache": TIER,
    "hicache-io-backend": TIER,
    "hicache-mem-layout": TIER,
    "cuda-graph-max-bs": GRAPHS,
    "cuda-graph-bs": GRAPHS,
    "cuda-graph-max-bs-decode": GRAPHS,
    "cuda-graph-max-bs-prefill": GRAPHS,
    "cuda-graph-bs-decode": GRAPHS,
    "cuda-graph-bs-prefill": GRAPHS,
    "disable-cuda-graph": GRAPHS,
    "disable-cuda-graph-padding": GRAPHS,
    "chunked-prefill-size": BATCHES,
    "max-prefill-tokens": BATCHES,
    "prefill-max-requests": BATCHES,
    "max-queued-requests": BATCHES,
    "schedule-policy": BATCHES,
    "schedule-conservativeness": BATCHES,
    "enable-mixed-chunk": BATCHES,
    "disable-overlap-schedule": BATCHES,
    "enable-priority-scheduling": BATCHES,
    "num-continuous-decode-steps": BATCHES,
    "sampling-backend": TOKENS,
    "grammar-backend": TOKENS,
    "random-seed": TOKENS,
    "preferred-sampling-params": TOKENS,
    "tokenizer-path": TOKENS,
    "tokenizer-mode": TOKENS,
    "tokenizer-worker-num": TOKENS,
    "trust-remote-code": TOKENS,
    "api-key": TOKENS,
    "admin-api-key": TOKENS,
}

# Up to 0.5.13 a draft model is loaded after the target's pools; from 0.5.14 on before them
# (Scheduler.init_model_worker): then a changed draft changes what is free after the weights.
DRAFT_FIRST = (0, 5, 14)

ENV_AFTER_WEIGHTS: dict[str, str] = {
    "SGLANG_ENABLE_SPEC_V2": "schedules the draft's steps",
    "SGLANG_HEALTH_CHECK_TIMEOUT": BATCHES,
    "SGLANG_HUGEPAGE_SIZE": TIER,
    "SGLANG_HICACHE_HOST_REGISTER_CHUNK_GB": TIER,
    "SGLANG_HICACHE_HOST_PARALLEL_ALLOC_THREADS": TIER,
}


def changes(
    old: Mapping[str, Any], new: Mapping[str, Any], old_env: Mapping[str, str],
    new_env: Mapping[str, str],
) -> list[str]:  # fmt: skip
    """Names of settings that differ and may change free GPU memory around the weights. Those of a
    draft model are not among them: see `draft_changes`."""
    flags = [
        name
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
        and name not in NOT_ON_GPU
        and name not in AFTER_WEIGHTS
        and not name.startswith("speculative-")
    ]
    env = [
        f"env.{name}"
        for name in sorted({*old_env, *new_env})
        if old_env.get(name) != new_env.get(name)
        and name not in ENV_NOT_ON_GPU
        and name not in ENV_AFTER_WEIGHTS
    ]
    return flags + env


# A number of tokens is also the same over these. The tier may change the attention backend, but
# tokens are divided before any backend is made; the others act through the automatic fraction.
_NOT_TOKENS = frozenset({TIER})
_THROUGH_FRACTION = frozenset({GRAPHS, BATCHES, TOKENS})


def token_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Names of flags that differ and may change the number of tokens. Drafts count whole."""
    fixed = old.get("mem-fraction-static") is not None and new.get("mem-fraction-static")
    harmless = _NOT_TOKENS | _THROUGH_FRACTION if fixed else _NOT_TOKENS
    return [
        name
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
        and name not in NOT_ON_GPU
        and AFTER_WEIGHTS.get(name) not in harmless
    ]


# How a draft is used, not which one is loaded.
_STEPS = frozenset(
    {
        "speculative-num-steps",
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
        "speculative-attention-mode",
        "speculative-accept-threshold-single",
        "speculative-accept-threshold-acc",
    }
)


def draft_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Settings that decide which draft model is loaded, and how, and that differ. Any flag of a
    draft that is not known to be harmless counts."""
    return [
        name
        for name in sorted({*old, *new})
        if name.startswith("speculative-") and name not in _STEPS and old.get(name) != new.get(name)
    ]
