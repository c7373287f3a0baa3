"""The engine's metrics that a deployer reads, under the engine's own names. Pure.

A part of what the real engine exposes: counters of requests and tokens, cached tokens by tier,
queue and KV gauges. The stand-in has no cache, so its tier counters stay at zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from opsctl.rehearsal.answers import Reply, Serving


@dataclass
class Counts:
    requests: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    seconds: float = 0.0

    def add(self, answer: Reply, seconds: float) -> None:
        self.requests += 1
        self.prompt_tokens += answer.prompt_tokens
        self.generation_tokens += answer.completion_tokens
        self.seconds += seconds


def render(counts: Counts, serving: Serving, gpu: Mapping[str, Any], running: int) -> str:
    labels = f'model_name="{serving.served_name}"'
    ranked = f'engine_type="unified",{labels},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    return "".join(
        f"# HELP sglang:{name} {text}\n# TYPE sglang:{name} {kind}\n"
        + "".join(f"sglang:{sample}\n" for sample in samples)
        for name, kind, text, samples in _families(counts, serving, gpu, running, labels, ranked)
    )


def _families(
    counts: Counts,
    serving: Serving,
    gpu: Mapping[str, Any],
    running: int,
    labels: str,
    ranked: str,
) -> Iterator[tuple[str, str, str, list[str]]]:
    def gauge(name: str, value: float, text: str) -> tuple[str, str, str, list[str]]:
        return name, "gauge", text, [f"{name}{{{ranked}}} {float(value)}"]

    def counter(name: str, value: float, text: str) -> tuple[str, str, str, list[str]]:
        return name, "counter", text, [f"{name}{{{labels}}} {float(value)}"]

    yield gauge("num_running_reqs", running, "The number of running requests.")
    yield gauge("num_queue_reqs", 0, "The number of requests in the waiting queue.")
    yield gauge("num_used_tokens", 0, "The number of used tokens.")
    yield gauge("token_usage", 0, "The token usage.")
    yield gauge("cache_hit_rate", 0, "The prefix cache hit rate.")
    yield gauge("gen_throughput", 0, "The generation throughput (token/s).")
    yield gauge("max_total_num_tokens", gpu["kv_tokens"], "Maximum total number of tokens.")
    if serving.flags.get("speculative-algorithm"):
        yield gauge("spec_accept_length", 0, "The average acceptance length.")
    yield counter("prompt_tokens_total", counts.prompt_tokens, "Number of prefill tokens.")
    yield counter("generation_tokens_total", counts.generation_tokens, "Number of new tokens.")
    yield counter("num_requests_total", counts.requests, "Number of requests processed.")
    yield (
        "cached_tokens_total",
        "counter",
        "Number of cached prompt tokens.",
        [
            f'cached_tokens_total{{cache_source="{tier}",{labels}}} 0.0'
            for tier in ("device", "host")
        ],
    )
    yield counter("evicted_tokens_total", 0, "Number of tokens evicted from the device.")
    yield counter("load_back_tokens_total", 0, "Number of tokens loaded back from the host.")
    name = "e2e_request_latency_seconds"
    yield (
        name,
        "histogram",
        "Histogram of end-to-end request latency in seconds",
        [
            f"{name}_sum{{{labels}}} {counts.seconds}",
            f'{name}_bucket{{le="+Inf",{labels}}} {float(counts.requests)}',
            f"{name}_count{{{labels}}} {float(counts.requests)}",
        ],
    )
