"""The engine's log lines of a start, in the words of 0.5.9 and of 0.5.23. Pure.

Read from the released packages of both versions and from real logs. Figures come as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]

NEW = "0.5.23"
MINUTES = "This can take up to several minutes."
GRAPH_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
)
_SCHEDULER = "lib/python3.11/site-packages/sglang/srt/managers/scheduler.py"


class Words:
    """The lines of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.new = version == NEW

    def dist_begin(self) -> str:
        return "Init parallel begin." if self.new else "Init torch distributed begin."

    def dist_end(self, seconds: float, usage: str) -> str:
        if self.new:
            return f"Init parallel ends. elapsed={seconds:.2f} s"
        return f"Init torch distributed ends. elapsed={seconds:.2f} s, mem usage={usage} GB"

    def weights_begin(self, free: str) -> str:
        return f"Load weight begin. avail mem={free} GB"

    def weights_bar(self, done: int, of: int, percent: int, seconds: float) -> str:
        """What rank 0 draws; `seconds` is what the whole load takes.

        0.5.9 ends each bar with a line feed, 0.5.23 draws over the last one until it is full.
        """
        word = (
            "Multi-thread loading shards" if self.new else "Loading safetensors checkpoint shards"
        )
        spent = seconds * percent / 100
        times = f"{_span(spent)}<{_span(seconds - spent)}, {of / seconds:.2f}it/s"
        bar = f"{word}: {percent:3d}% Completed | {done}/{of} [{times}]"
        if self.new:
            return "\r" + bar + ("\n" if percent == 100 else "")
        return bar + "\n"

    def weights_end(self, seconds: float, kind: str, dtype: str, free: str, used: str) -> str:
        dtype = "" if self.new else f"dtype={dtype}, "
        return (
            f"Load weight end. elapsed={seconds:.2f} s, type={kind}, {dtype}"
            f"avail mem={free} GB, mem usage={used} GB."
        )

    def kv_dtype(self, dtype: str) -> str:
        return "" if self.new else f"Using KV cache dtype: {dtype}"

    def kv(self, dtype: str, tokens: int, sizes: str) -> str:
        dtype = f"dtype: {dtype}, " if self.new else ""
        return f"KV Cache is allocated. {dtype}#tokens: {tokens}, {sizes}"

    def pool_end(self, free: str) -> str:
        return f"Memory pool end. avail mem={free} GB"

    def graphs_begin(self, free: str, draft: bool = False) -> str:
        if self.new:
            what = "draft decode" if draft else "target verify"
            return f"Capture {what} CUDA graph begin. backend=full, avail mem={free} GB"
        return f"Capture {'draft ' if draft else ''}cuda graph begin. {MINUTES} avail mem={free} GB"

    def graphs_end(self, seconds: float, used: str, free: str, draft: bool = False) -> str:
        if self.new:
            what = "draft decode" if draft else "target verify"
            return (
                f"Capture {what} CUDA graph end. elapsed={seconds:.2f} s, mem usage={used} GB, "
                f"avail mem={free} GB."
            )
        return (
            f"Capture {'draft ' if draft else ''}cuda graph end. Time elapsed: {seconds:.2f} s. "
            f"mem usage={used} GB. avail mem={free} GB."
        )

    def limits(self, tokens: int, model: Figures, free: str) -> str:
        return (
            f"max_total_num_tokens={tokens}, "
            f"chunked_prefill_size={model['chunked_prefill_size']}, "
            f"max_prefill_tokens={model['max_prefill_tokens']}, "
            f"max_running_requests={model['max_running_requests']}, "
            f"context_len={model['context_len']}, available_gpu_mem={free} GB"
        )

    def host_pool(self, gb: str, tokens: int) -> str:
        if self.new:
            return f"Allocating kv hierarchical KV host pool: {tokens} tokens, {gb} GB host memory."
        return f"Allocating {gb} GB host memory for hierarchical KV cache."

    def tree_cache(self) -> str:
        if not self.new:
            return ""
        return (
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
            "hybrid_ssm=False hicache_attached=True"
        )

    def crash(self, error: str) -> str:
        line = 6362 if self.new else 3130
        return (
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            f'  File "/opt/sglang/{self.version}/{_SCHEDULER}", line {line}, '
            f"in run_scheduler_process\n    scheduler = Scheduler(\n{error}"
        )


def host_memory_refused(wanted: str, free: str) -> str:
    return (
        f"ValueError: Not enough host memory available. Requesting {wanted} GB but only have "
        f"{free} GB free. Please reduce the size of the hierarchical cache.\n"
    )


def graphs_failed(reason: str) -> str:
    return f"Exception: Capture cuda graph failed: {reason}\n{GRAPH_ADVICE}"


def _span(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
