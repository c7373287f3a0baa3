"""How long each phase of a start took, from the times of its journal lines.

Phases: launch (processes and imports), dist, weights, kv, graphs, draft_weights, draft_kv,
draft_graphs, host_pools (allocated, touched and pinned), warmup (the HTTP process, the first
answer). A phase ends when its last rank has ended it: the ranks wait for each other, so the parts
add up to the whole start, whichever order a version does them in.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .model import Event, StartFacts

_ENDS = {
    "dist_begin": "launch", "dist_end": "dist", "weights_end": "weights", "kv": "kv",
    "kv_final": "kv", "pools_end": "kv", "graph_end": "graphs", "host_pool": "host_begin",
}  # fmt: skip
_DRAFTS = {"launch": "draft_weights", "dist": "draft_weights"}  # a second, empty init


def mark(ends: List[List[Any]], event: Event) -> None:
    """Note in `ends` that a rank has ended a phase: [phase, microseconds], in order. Lines of one
    phase that follow each other are one end."""
    name = _ENDS.get(event.kind)
    if name is None or not event.time:
        return
    last = ends[-1][0] if ends else ""
    if event.data.get("draft") and name != "host_begin":
        name = _DRAFTS.get(name, f"draft_{name}")
    elif event.kind == "pools_end" and last == "draft_kv":
        name = last
    if last != name:
        ends.append([name, event.time])
    elif name != "host_begin":
        ends[-1][1] = event.time


def seconds(facts: StartFacts) -> Dict[str, float]:
    """Seconds by phase of a start that became ready, with "total"; empty if it did not, or if the
    lines had no times."""
    if not (facts.began and facts.readied > facts.began):
        return {}
    boundaries: Dict[Tuple[str, int], Tuple[int, int]] = {}  # → time, place among its rank's
    for rank in facts.ranks.values():
        seen: Dict[str, int] = {}
        for place, (name, time) in enumerate(rank.ends):
            seen[name] = seen.get(name, 0) + 1
            key = (name, seen[name])
            boundaries[key] = max(boundaries.get(key, (0, 0)), (int(time), place))
    ordered = [
        (time, name) for time, _, name in sorted((*at, n) for (n, _), at in boundaries.items())
    ]
    pinned = any(name == "host_begin" for _, name in ordered)
    if facts.served and pinned:
        ordered.append((facts.served, "host_pools"))
    found: Dict[str, float] = {}
    before = facts.began
    for time, name in [*ordered, (facts.readied, "warmup")]:
        name = "graphs" if name == "host_begin" else name  # what is left to set up before the pools
        found[name] = found.get(name, 0.0) + max(0, time - before) / 1e6
        before = max(before, time)
    found["total"] = (facts.readied - facts.began) / 1e6
    return {name: round(value, 3) for name, value in found.items()}
