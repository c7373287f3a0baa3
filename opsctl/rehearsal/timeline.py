"""What one rank does and logs in one start, as a list of steps. Pure: no clock, no I/O.

The order is the engine's. 0.5.9 brings the target up whole before the draft model, 0.5.23 loads
both before it sizes the KV pools; the host pool comes last. The figures are the scenario's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from opsctl.rehearsal.ranks import Rank
from opsctl.rehearsal.scenario import Fault, Scenario
from opsctl.rehearsal.wording import Words, graphs_failed, host_memory_refused

PARTS = 10  # steps that a load of weights is played in


@dataclass(frozen=True)
class Step:
    """Something that takes `seconds` of the scenario and then logs `line`.

    `gpu_mib`, `host_kb`: what the rank holds when it ends (None: as before); it grows evenly.
    `at_most_kb`: a stranger on the host leaves no more than this available from here on.
    `loads`: it reads the model's files meanwhile. `raw`: printed without the log's prefix.
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
    """What is started: the scenario, the typed flags of the command line, the fault, if any."""

    scenario: Scenario
    flags: Mapping[str, Any]
    fault: Fault | None

    def fault_of(self, kind: str, rank: Rank | None = None) -> Mapping[str, Any] | None:
        """The fault's options if it is of this kind (and hits this rank)."""
        if self.fault is None or self.fault.kind != kind:
            return None
        hit = rank is None or self.fault.options.get("rank", rank.label) == rank.label
        return self.fault.options if hit else None


def steps(start: Start, rank: Rank) -> list[Step]:
    """Raises ScenarioError where the scenario has no figures for these flags."""
    return list(_until_end(_Player(start, rank).play()))


def _until_end(played: list[Step]) -> Iterator[Step]:
    for step in played:
        yield step
        if step.ends in ("crash", "hang"):
            return


class _Player:
    """One rank's part in one start."""

    def __init__(self, start: Start, rank: Rank) -> None:
        scenario = start.scenario
        self.start, self.rank = start, rank
        self.words, self.flags = Words(scenario.engine), start.flags
        self.timing, self.model = scenario.timing, scenario.model
        self.gpu = scenario.gpu_figures(start.flags)
        self.pool = scenario.pool_figures(start.flags)
        self.total_mib = int(scenario.machine["gpu_memory_mib"])
        self.rss = int(self.model["rss_kb"])

    def play(self) -> list[Step]:
        target = [self._weights(), self._kv(), self._graphs()]
        draft: list[Iterator[Step]] = []
        if self.flags.get("speculative-draft-model-path"):
            figures = self.start.scenario.draft_figures(self.flags)
            draft = [
                self._draft_weights(figures),
                self._draft_kv(figures),
                self._draft_graphs(figures),
            ]
        ordered = [*target, *draft]
        if self.words.new and draft:
            ordered = [part for pair in zip(target, draft, strict=True) for part in pair]
        played = [*self._distribute(), *chain(*ordered), *self._host_pool()]
        if self.start.fault_of("silent-rank", self.rank) is not None:
            played = [replace(s, line="") for s in played]
        grown = self.start.fault_of("too-little-ram-after-start")
        if grown is not None:
            held = self.rss + int(self.pool["kb"]) + int(grown["extra_rss_kb"])
            played.append(Step(host_kb=held))
        return played

    def _used(self, free_gib: str) -> int:
        """GPU memory held, in MiB, when the card has so much left."""
        return self.total_mib - int(float(free_gib) * 1024)

    def _distribute(self) -> Iterator[Step]:
        took = float(self.timing["dist_init"])
        yield Step(float(self.timing["launch"]), self.words.dist_begin())
        yield Step(
            took,
            self.words.dist_end(took, self.gpu["dist_usage"]),
            gpu_mib=self._used(self.gpu["free_before"]),
            host_kb=self.rss // 4,
        )

    def _weights(self) -> Iterator[Step]:
        """Rank 0 draws the progress bar; the others say nothing for the whole load."""
        gpu, all_take = self.gpu, [float(s) for s in self.timing["weights"]]
        took = all_take[self.rank.number % len(all_take)]
        hang = self.start.fault_of("hang-in-loading")
        before, after = self._used(gpu["free_before"]), self._used(gpu["free_after"])
        shards = int(self.model["shards"])
        yield Step(0.0, self.words.weights_begin(gpu["free_before"]))
        for part in range(1, PARTS + 1):
            if hang is not None and part > PARTS * float(hang["share"]):
                yield Step(ends="hang")
            percent, done = 100 * part // PARTS, shards * part // PARTS
            bar = self.words.weights_bar(done, shards, percent, took)
            yield Step(
                took / PARTS,
                bar if self.rank.number == 0 else "",
                gpu_mib=before + (after - before) * part // PARTS,
                host_kb=self.rss // 4 + (self.rss - self.rss // 4) * part // PARTS,
                loads=True,
                raw=True,
            )
        yield Step(
            0.0,
            self.words.weights_end(
                took, self.model["type"], self.model["dtype"], gpu["free_after"], gpu["weights"]
            ),
        )
        # The ranks agree on the smallest pool, so the fastest waits here for the slowest.
        yield Step(max(all_take) - took)

    def _kv(self) -> Iterator[Step]:
        odd = self.start.fault_of("odd-rank", self.rank) or {}
        tokens, size = (odd.get(k, self.gpu[k]) for k in ("kv_tokens", "kv_size"))
        yield Step(0.0, self.words.kv_dtype(self.model["dtype"]))
        yield Step(
            float(self.timing["kv_pool"]),
            self.words.kv(self.model["dtype"], tokens, f"KV size: {size} GB"),
            gpu_mib=self._used(self.gpu["free_pool"]),
        )
        yield Step(0.0, self.words.pool_end(self.gpu["free_pool"]))

    def _graphs(self) -> Iterator[Step]:
        if self.flags.get("disable-cuda-graph"):
            return
        gpu, took = self.gpu, float(self.timing["graphs"])
        yield Step(0.0, self.words.graphs_begin(gpu["free_pool"]))
        if self.rank.number == 0 and not self.words.new:
            yield Step(0.0, f"Capture cuda graph bs {self.model['graph_bs']}")
        crash = self.start.fault_of("crash-at-graphs")
        if crash is not None:
            yield Step(took / 2)
            if self.start.fault_of("crash-at-graphs", self.rank) is not None:
                yield Step(0.0, self.words.crash(graphs_failed(crash["message"])), ends="crash")
            yield Step(ends="hang")  # its peers wait for it in a collective until they are killed
        yield Step(
            took,
            self.words.graphs_end(took, gpu["graph_size"], gpu["free_graphs"]),
            gpu_mib=self._used(gpu["free_graphs"]),
        )

    def _draft_weights(self, draft: Mapping[str, Any]) -> Iterator[Step]:
        took, words = float(self.timing["draft_weights"]), self.words
        yield Step(0.0, words.dist_begin())
        yield Step(0.0, words.dist_end(0.0, "0.00"))
        yield Step(0.0, words.weights_begin(draft["free_before"]))
        yield Step(
            took,
            words.weights_end(
                took, draft["type"], self.model["dtype"], draft["free_after"], draft["weights"]
            ),
            gpu_mib=self._used(draft["free_after"]),
            loads=True,
        )

    def _draft_kv(self, draft: Mapping[str, Any]) -> Iterator[Step]:
        dtype, half = self.model["dtype"], f"{float(draft['kv_size']) / 2:.2f} GB"
        yield Step(0.0, self.words.kv_dtype(dtype))
        yield Step(
            0.0,
            self.words.kv(dtype, self.gpu["kv_tokens"], f"K size: {half}, V size: {half}"),
            gpu_mib=self._used(draft["free_pool"]),
        )
        yield Step(0.0, self.words.pool_end(draft["free_pool"]))

    def _draft_graphs(self, draft: Mapping[str, Any]) -> Iterator[Step]:
        took = float(self.timing["draft_graphs"])
        yield Step(0.0, self.words.graphs_begin(draft["free_pool"], draft=True))
        yield Step(
            took,
            self.words.graphs_end(took, draft["graph_size"], draft["free_graphs"], draft=True),
            gpu_mib=self._used(draft["free_graphs"]),
        )

    def _host_pool(self) -> Iterator[Step]:
        """The host tier; without it the rank is ready at once."""
        gpu, odd = self.gpu, self.start.fault_of("odd-rank", self.rank) or {}
        gb, kb = odd.get("gb", self.pool["gb"]), int(odd.get("kb", self.pool["kb"]))
        if self.rank.number == 0:
            yield Step(0.0, self.words.limits(gpu["kv_tokens"], self.model, gpu["free_ready"]))
        if self.flags.get("enable-hierarchical-cache"):
            refused = self.start.fault_of("host-memory-refused")
            if refused is not None:
                yield Step(at_most_kb=int(refused["available_kb"]))
                error = host_memory_refused(gb, refused["free_gb"])
                yield Step(0.0, self.words.crash(error), ends="crash")
            yield Step(0.0, self.words.host_pool(gb, int(self.pool.get("tokens", 0))))
            yield Step(float(self.timing["pin"]), host_kb=self.rss + kb)
            yield Step(0.0, self.words.tree_cache())
        yield Step(ends="ready")
