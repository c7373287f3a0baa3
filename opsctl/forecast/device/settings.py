"""What of a Case the sizes depend on, read once: versions as keys, parallel sizes, speculation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from opsctl.engine.rules import shared
from opsctl.forecast.values import Case, NoForecast
from opsctl.onhost.expect import version_key

# Algorithms with a draft model whose KV pool is computed here, and those without any draft model.
DRAFTED = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
UNDRAFTED = frozenset({"", "NGRAM"})

# Flags that change the sizes in ways that are not computed here, with their harmless values.
_NOT_MODELLED: dict[str, tuple[Any, ...]] = {
    "attn-cp-size": (1,),
    "cpu-offload-gb": (0,),
    "offload-group-size": (-1, 0),
    "dcp-size": (1,),
    "enable-prefill-cp": (False,),
    "enable-nsa-prefill-context-parallel": (False,),
    "enable-dsa-prefill-context-parallel": (False,),
    "enable-kv-cache-sharding": (False,),
    "enable-hisparse": (False,),
    "enable-unified-memory": (False,),
    "enable-double-sparsity": (False,),
    "enable-pdmux": (False,),
    "enable-linear-replayssm": (False,),
    "enable-linear-replayssm-spec": (False,),
    "enable-int8-mamba-checkpoint": (False,),
    "enable-lora": (False,),
    "lora-paths": ([], {}, ""),
    "json-model-override-args": ("{}", {}, ""),
    "disaggregation-mode": ("null",),
}
POST_CAPTURE = "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"
_UNMODELLED_VARIABLES = ("SGLANG_CI_SMALL_KV_SIZE", "SGLANG_NPU_ENABLE_SPARSE_KV_OFFLOAD")


@dataclass(frozen=True, slots=True)
class Settings:
    """`key`: the version, comparable. `groups`: DP-attention groups; `heads_over`: ranks that KV
    heads are split over. `algorithm`: "" without speculation. `running`: the requests at once
    that the flags ask for, of all groups together; None: left to the engine."""

    key: tuple[int, ...]
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    tp: int
    pp: int
    groups: int
    heads_over: int
    algorithm: str
    running: int | None
    branches: int = 1  # of a speculation step, as far as the flags say


@dataclass(frozen=True, slots=True)
class Speculation:
    """Steps of the draft, branches a step, and tokens that one verification takes."""

    steps: int
    branches: int
    tokens: int


@cache
def parsed(version: str) -> tuple[int, ...]:
    return version_key(version)


def names(text: str) -> frozenset[str]:
    """Words of a list that is kept readable as text."""
    return frozenset(text.split())


def on(value: str | None) -> bool:
    """Whether a boolean environment variable is set, as the engine reads it."""
    return value is not None and value.strip().lower() in ("1", "true", "yes", "y")


def settings(case: Case) -> Settings:
    """Raises NoForecast for a flag or variable that makes the arithmetic here wrong."""
    flags, env = case.flags, case.env
    for name, value in flags.items():
        if name in _NOT_MODELLED and value is not None and value not in _NOT_MODELLED[name]:
            raise NoForecast(f"{name} is set, and its effect on memory is not forecast yet")
    key = parsed(case.version)
    if env:
        _refuse_variables(env, key)
    tp = int(flags.get("tp-size") or 1)
    groups = shared.groups(flags)
    if case.shape.indexer is not None and (0, 5, 3) <= key < (0, 5, 6):
        groups = tp  # these releases turn DP attention on for DSA, over all ranks
    algorithm = shared.algorithm(flags)
    running = flags.get("max-running-requests")
    if running is None and algorithm:
        running = shared.RUNNING
    return Settings(
        key,
        flags,
        env,
        tp,
        int(flags.get("pp-size") or 1),
        groups,
        max(1, tp // groups),
        algorithm,
        None if running is None else int(running),
        int(flags.get("speculative-eagle-topk") or 1),
    )


def _refuse_variables(env: Mapping[str, str], key: tuple[int, ...]) -> None:
    if key >= (0, 5, 16) and on(env.get(POST_CAPTURE)):
        raise NoForecast(
            f"{POST_CAPTURE} sizes the KV cache by what the graphs leave, which no figure tells"
        )
    for name in _UNMODELLED_VARIABLES:
        if env.get(name):
            raise NoForecast(f"{name} is set, and its effect on memory is not forecast yet")


def speculation(case: Case, set_: Settings) -> Speculation:
    """Steps, branches and tokens; where they are not set, as the engine chooses by architecture.

    Source: `auto_choose_speculative_params` (0.5.2 to 0.5.13), arg_groups/speculative_hook.py.
    Raises NoForecast if they are set in part.
    """
    flags = set_.flags
    steps, branches = flags.get("speculative-num-steps"), flags.get("speculative-eagle-topk")
    tokens = flags.get("speculative-num-draft-tokens")
    if set_.algorithm == "NGRAM":
        return Speculation(0, 1, shared.ngram_tokens(flags))
    if steps is None and branches is None and tokens is None:
        return _chosen(case.shape.architecture, set_)
    if steps is not None and branches is not None and int(branches) == 1:
        return Speculation(int(steps), 1, int(steps) + 1)
    if steps is None or branches is None or tokens is None:
        raise NoForecast(
            "of speculative-num-steps, -eagle-topk and -num-draft-tokens only some are set"
        )
    return Speculation(int(steps), int(branches), int(tokens))


_SHORT = frozenset({"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM"})
_LONG = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})


def _chosen(architecture: str, set_: Settings) -> Speculation:
    if set_.algorithm == "STANDALONE" or architecture in _SHORT:
        return Speculation(3, 1, 4)
    if architecture in _LONG:
        return Speculation(5, 4, 8)
    if set_.key >= (0, 5, 8):
        return Speculation(3, 1, 4)
    raise NoForecast(
        "set speculative-num-steps, speculative-eagle-topk and speculative-num-draft-tokens: "
        f"what this release chooses for {architecture} is not known here"
    )
