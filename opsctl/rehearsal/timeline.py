"""What one rank does and logs in one start, as a list of steps. Pure: no clock, no I/O.

The order and the wording are those of the engine's own versions (0.5.9 and 0.5.23); the figures are
the scenario's, as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opsctl.rehearsal.ranks import Rank
from opsctl.rehearsal.scenario import Fault, Scenario

GIB_IN_MIB = 1024

CRASHED_IN = {
    "0.5.9": (
        'File "/opt/sglang/0.5.9/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", '
        "line 3130, in run_scheduler_process"
    ),
    "0.5.23": (
        'File "/opt/sglang/0.5.23/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", '
        "line 6362, in run_scheduler_process"
    ),
}
GRAPH_ADVICE = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs to a smaller value (e.g., 16)\n"
    "3. disable torch compile by not using --enable-torch-compile\n"
    "4. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)\n"
)


@dataclass(frozen=True)
class Step:
    """Something that takes `seconds` of the scenario and then logs `line`.

    `gpu_mib`, `host_kb`: what the rank holds when it ends (None: as before); it grows there evenly.
    `at_most_kb`: a stranger on the host leaves no more than this available from here on.
    `loads`: it reads the model's files meanwhile. `raw`: printed as it is, without the log's prefix.
    `ends`: "" goes on, "crash" kills the engine, "hang" stops for ever, "ready" tells the parent.
    """

    seconds: float = 0.0
    line: str = ""
    gpu_mib: int | None = None
    host_kb: int | None = None
    at_most_kb: int | None = None
    loads: bool = False
    raw: bool = False
    ends: str = ""


@dataclass(frozen=True)
class Start:
    """What is started: the scenario, the command line's typed flags, and the fault, if it applies."""

    scenario: Scenario
    flags: Mapping[str, Any]
    fault: Fault | None

    def is_fault(self, kind: str, rank: Rank | None = None) -> bool:
        if self.fault is None or self.fault.kind != kind:
            return False
        return rank is None or self.fault.options.get("rank", rank.label) == rank.label


def steps(start: Start, rank: Rank) -> list[Step]:
    """Raises ScenarioError where the scenario has no figures for these flags."""
    played = [*_load(start, rank), *_graphs(start, rank), *_draft(start, rank), *_pool(start, rank)]
    if start.is_fault("silent-rank", rank):
        played = [replace(s, line="") if s.line and not s.ends else s for s in played]
    if start.is_fault("too-little-ram-after-start"):
        assert start.fault is not None
        grown = played[-1].host_kb or _last_host(played)
        played.append(Step(0.0, host_kb=grown + int(start.fault.options["extra_rss_kb"])))
    return list(_until_end(played))


def _until_end(played: list[Step]) -> Iterator[Step]:
    for step in played:
        yield step
        if step.ends in ("crash", "hang"):
            return


def _last_host(played: list[Step]) -> int:
    return next((s.host_kb for s in reversed(played) if s.host_kb is not None), 0)


def _used(scenario: Scenario, free_gib: str) -> int:
    """GPU memory held, in MiB, when the card has so much left."""
    return int(scenario.machine["gpu_memory_mib"]) - int(float(free_gib) * GIB_IN_MIB)


def _load(start: Start, rank: Rank) -> Iterator[Step]:
    scenario, timing, model = start.scenario, start.scenario.timing, start.scenario.model
    gpu = scenario.gpu_figures(start.flags)
    new = scenario.engine == "0.5.23"
    rss, before = int(model["rss_kb"]), _used(scenario, gpu["free_before"])
    took = _nth(timing["weights"], rank.number)
    slowest = max(timing["weights"])
    dist = float(timing["dist_init"])
    yield Step(
        float(timing["launch"]), "Init parallel begin." if new else "Init torch distributed begin."
    )
    yield Step(
        dist,
        f"Init parallel ends. elapsed={dist:.2f} s"
        if new
        else f"Init torch distributed ends. elapsed={dist:.2f} s, mem usage={gpu['dist_usage']} GB",
        gpu_mib=before,
        host_kb=rss // 4,
    )
    yield Step(0.0, f"Load weight begin. avail mem={gpu['free_before']} GB")
    yield from _weights(start, rank, took, before, _used(scenario, gpu["free_after"]), rss)
    kind = f"type={model['type']}, " + ("" if new else f"dtype={model['dtype']}, ")
    yield Step(
        0.0,
        f"Load weight end. elapsed={took:.2f} s, {kind}"
        f"avail mem={gpu['free_after']} GB, mem usage={gpu['weights']} GB.",
    )
    # The ranks agree on the smallest pool, so the fastest waits here for the slowest.
    yield Step(slowest - took)
    if not new:
        yield Step(0.0, f"Using KV cache dtype: {model['dtype']}")
    tokens, size = gpu["kv_tokens"], gpu["kv_size"]
    if start.is_fault("odd-rank", rank) and start.fault:
        tokens, size = start.fault.options["kv_tokens"], start.fault.options["kv_size"]
    dtype = f"dtype: {model['dtype']}, " if new else ""
    yield Step(
        float(timing["kv_pool"]),
        f"KV Cache is allocated. {dtype}#tokens: {tokens}, KV size: {size} GB",
        gpu_mib=_used(scenario, gpu["free_pool"]),
    )
    yield Step(0.0, f"Memory pool end. avail mem={gpu['free_pool']} GB")


def _weights(
    start: Start, rank: Rank, took: float, before: int, after: int, rss: int
) -> Iterator[Step]:
    """Ten steps; rank 0 draws the progress bar, the others say nothing for the whole load."""
    shards = int(start.scenario.model["shards"])
    parts = 10
    stop = (
        math.ceil(parts * float(start.fault.options["share"]))
        if start.is_fault("hang-in-loading") and start.fault
        else parts + 1
    )
    new = start.scenario.engine == "0.5.23"
    word = "Multi-thread loading shards" if new else "Loading safetensors checkpoint shards"
    for part in range(1, parts + 1):
        if part > stop:
            yield Step(0.0, ends="hang")
            return
        done = shards * part // parts
        bar = f"{word}: {100 * part // parts:3d}% Completed | {done}/{shards} [{_span(took * part / parts)}<{_span(took * (parts - part) / parts)}, {shards / took:.2f}it/s]"
        yield Step(
            took / parts,
            bar if rank.number == 0 else "",
            gpu_mib=before + (after - before) * part // parts,
            host_kb=rss // 4 + (rss - rss // 4) * part // parts,
            loads=True,
            raw=True,
        )


def _span(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def _graphs(start: Start, rank: Rank) -> Iterator[Step]:
    scenario, gpu = start.scenario, start.scenario.gpu_figures(start.flags)
    if start.flags.get("disable-cuda-graph"):
        return
    took = float(scenario.timing["graphs"])
    bs = scenario.model["graph_bs"]
    new = scenario.engine == "0.5.23"
    yield Step(
        0.0,
        f"Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem={gpu['free_pool']} GB"
        if new
        else "Capture cuda graph begin. This can take up to several minutes. "
        f"avail mem={gpu['free_pool']} GB",
    )
    if rank.number == 0 and not new:
        yield Step(0.0, f"Capture cuda graph bs {bs}")
    if start.is_fault("crash-at-graphs") and start.fault:
        yield Step(took / 2)
        if start.is_fault("crash-at-graphs", rank):
            yield _crash(
                scenario,
                f"Exception: Capture cuda graph failed: {start.fault.options['message']}\n"
                + GRAPH_ADVICE,
            )
        yield Step(0.0, ends="hang")  # its peers wait for it in a collective until they are killed
        return
    yield Step(
        took,
        f"Capture target verify CUDA graph end. bs={bs}, elapsed={took:.2f} s, "
        f"mem usage={gpu['graph_size']} GB, avail mem={gpu['free_graphs']} GB."
        if new
        else f"Capture cuda graph end. Time elapsed: {took:.2f} s. "
        f"mem usage={gpu['graph_size']} GB. avail mem={gpu['free_graphs']} GB.",
        gpu_mib=_used(scenario, gpu["free_graphs"]),
    )


def _draft(start: Start, rank: Rank) -> Iterator[Step]:
    """The draft model: loaded after the target's graphs, as 0.5.9 does it."""
    if not start.flags.get("speculative-draft-model-path"):
        return
    scenario, timing = start.scenario, start.scenario.timing
    draft, gpu = scenario.draft_figures(start.flags), scenario.gpu_figures(start.flags)
    took, graphs = float(timing["draft_weights"]), float(timing["draft_graphs"])
    dtype = scenario.model["dtype"]
    yield Step(0.0, "Init torch distributed begin.")
    yield Step(0.0, "Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB")
    yield Step(0.0, f"Load weight begin. avail mem={draft['free_before']} GB")
    yield Step(
        took,
        f"Load weight end. elapsed={took:.2f} s, type={draft['type']}, dtype={dtype}, "
        f"avail mem={draft['free_after']} GB, mem usage={draft['weights']} GB.",
        gpu_mib=_used(scenario, draft["free_after"]),
        loads=True,
    )
    yield Step(0.0, f"Using KV cache dtype: {dtype}")
    yield Step(
        0.0,
        f"KV Cache is allocated. #tokens: {gpu['kv_tokens']}, K size: {float(draft['kv_size']) / 2:.2f} GB, "
        f"V size: {float(draft['kv_size']) / 2:.2f} GB",
        gpu_mib=_used(scenario, draft["free_pool"]),
    )
    yield Step(0.0, f"Memory pool end. avail mem={draft['free_pool']} GB")
    yield Step(
        0.0,
        "Capture draft cuda graph begin. This can take up to several minutes. "
        f"avail mem={draft['free_pool']} GB",
    )
    yield Step(
        graphs,
        f"Capture draft cuda graph end. Time elapsed: {graphs:.2f} s. "
        f"mem usage={draft['graph_size']} GB. avail mem={draft['free_graphs']} GB.",
        gpu_mib=_used(scenario, draft["free_graphs"]),
    )


def _pool(start: Start, rank: Rank) -> Iterator[Step]:
    scenario, model = start.scenario, start.scenario.model
    gpu, pool = scenario.gpu_figures(start.flags), scenario.pool_figures(start.flags)
    new, rss = scenario.engine == "0.5.23", int(model["rss_kb"])
    if rank.number == 0:
        yield Step(
            0.0,
            f"max_total_num_tokens={gpu['kv_tokens']}, "
            f"chunked_prefill_size={model['chunked_prefill_size']}, "
            f"max_prefill_tokens={model['max_prefill_tokens']}, "
            f"max_running_requests={model['max_running_requests']}, "
            f"context_len={model['context_len']}, available_gpu_mem={gpu['free_ready']} GB",
        )
    if not start.flags.get("enable-hierarchical-cache"):
        yield Step(0.0, ends="ready")
        return
    if start.is_fault("host-memory-refused") and start.fault:
        yield Step(0.0, at_most_kb=int(start.fault.options["available_kb"]))
        yield _crash(
            scenario,
            f"ValueError: Not enough host memory available. Requesting {pool['gb']} GB but only have "
            f"{start.fault.options['free_gb']} GB free. Please reduce the size of the hierarchical "
            "cache.\n",
        )
        return
    gb, kb = pool["gb"], int(pool["kb"])
    if start.is_fault("odd-rank", rank) and start.fault:
        gb, kb = start.fault.options["gb"], int(start.fault.options["kb"])
    # Newer engines name the pool and its tokens; the scenario then says so in `host_line`.
    yield Step(0.0, pool.get("line", f"Allocating {gb} GB host memory for hierarchical KV cache."))
    yield Step(float(scenario.timing["pin"]), host_kb=rss + kb)
    if new:
        yield Step(
            0.0,
            "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
            "hybrid_ssm=False hicache_attached=True",
        )
    yield Step(0.0, ends="ready")


def _crash(scenario: Scenario, error: str) -> Step:
    return Step(
        0.0,
        "Scheduler hit an exception: Traceback (most recent call last):\n  "
        f"{CRASHED_IN.get(scenario.engine, '')}\n    scheduler = Scheduler(\n{error}",
        ends="crash",
    )


def _nth(values: list[float], number: int) -> float:
    return float(values[number % len(values)])
