"""What of a Case the sizes depend on, read once: versions as keys, parallel sizes, speculation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from opsctl.forecast.values import Case, NoForecast
from opsctl.onhost.expect import version_key

EAGLE = frozenset({"EAGLE", "EAGLE3", "NEXTN"})

# Flags that change the sizes in ways that are not computed here, with their harmless values.
_NOT_MODELLED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("attn-cp-size", (1,)),
    ("dcp-size", (1,)),
    ("enable-kv-cache-sharding", (False,)),
    ("enable-hisparse", (False,)),
    ("enable-unified-memory", (False,)),
    ("enable-double-sparsity", (False,)),
    ("enable-pdmux", (False,)),
    ("enable-lora", (False,)),
    ("lora-paths", ([], {}, "")),
    ("json-model-override-args", ("{}", {}, "")),
    ("disaggregation-mode", ("null",)),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """`key`: the version, comparable. `groups`: DP-attention groups; `heads_over`: ranks that KV
    heads are split over. `algorithm`: "" without speculation."""

    key: tuple[int, ...]
    flags: Mapping[str, Any]
    env: Mapping[str, str]
    tp: int
    pp: int
    groups: int
    heads_over: int
    algorithm: str


@cache
def parsed(version: str) -> tuple[int, ...]:
    return version_key(version)


def settings(case: Case) -> Settings:
    """Raises NoForecast for a flag or variable that makes the arithmetic here wrong."""
    flags, env = case.flags, case.env
    for name, harmless in _NOT_MODELLED:
        value = flags.get(name)
        if value is not None and value not in harmless:
            raise NoForecast(f"{name} is set, and its effect on memory is not forecast yet")
    if env and env.get("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "0").lower() in ("1", "true"):
        raise NoForecast("the KV cache is sized after the graphs, which is not forecast yet")
    tp, pp = int(flags.get("tp-size") or 1), int(flags.get("pp-size") or 1)
    groups = int(flags.get("attn-dp-size") or 1)
    if groups == 1 and flags.get("enable-dp-attention"):
        groups = int(flags.get("dp-size") or 1)
    return Settings(
        parsed(case.version),
        flags,
        env,
        tp,
        pp,
        groups,
        max(1, tp // groups),
        str(flags.get("speculative-algorithm") or "").upper(),
    )
