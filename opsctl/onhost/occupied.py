"""Who is on the GPUs that a release will take: strangers, and other services of opsctl. Pure.

A service has its GPUs for itself alone, as descriptions of one host are judged, too: what a second
engine finds on a card is neither what was forecast for it nor what it found at its last start.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterable, List, Mapping, Sequence

from opsctl.onhost import gates
from opsctl.onhost.expect import gib
from opsctl.onhost.model import FAIL

# A process may open a context, and no more, on cards that it does not use. A judgement.
CONTEXT = 1 << 30  # bytes
NOTHING: Mapping[str, int] = {"available": 0, "total": 0, "swap_used": 0}


def cards(manifest: Mapping[str, Any]) -> List[int]:
    """Indices of the cards that its ranks on this host take: one each, of `gpus` or of all, from
    base-gpu-id on, in steps of gpu-id-step. None of an engine on the CPU."""
    flags: Mapping[str, Any] = manifest.get("flags") or {}
    if flags.get("device") == "cpu":
        return []
    first, step = int(flags.get("base-gpu-id") or 0), int(flags.get("gpu-id-step") or 1)
    places = [first + step * n for n in range(len(manifest.get("ranks") or ()))]
    own: Sequence[int] = manifest.get("gpus") or range(max(places, default=-1) + 1)
    return [own[place] for place in places if place < len(own)]


def problems(
    manifest: Mapping[str, Any],
    held: Iterable[Mapping[str, Any]],
    owners: Mapping[int, str],
    leaving: Collection[str] = (),
) -> List[str]:
    """`held`: who holds how much of which card. `owners`: PID → unit, of all units of ours.
    `leaving`: those of them that will have left, or changed, by the time that this one starts."""
    held = list(held)
    check = gates.memory(NOTHING, {"min_available": 0}, held, owners, manifest.get("gpus"))
    wrong = list(check.evidence[1:]) if check.status == FAIL else []
    wanted = set(cards(manifest))
    found: Dict[str, Dict[int, int]] = {}
    for process in held:
        unit = owners.get(process["pid"], "")
        if unit and unit not in leaving and process["gpu"] in wanted:
            of = found.setdefault(unit, {})
            of[process["gpu"]] = of.get(process["gpu"], 0) + int(process["memory"])
    for unit, of in found.items():
        used = {gpu: size for gpu, size in of.items() if size >= CONTEXT}
        wrong += [_told(unit, used)] if used else []
    return wrong


def _told(unit: str, of: Mapping[int, int]) -> str:
    name = unit[len("sglang-") : -len(".service")] if unit.startswith("sglang-") else unit
    least, most = min(of.values()), max(of.values())
    size = gib(most) if least == most else f"{gib(least)} to {gib(most)}"
    verb, each = ("is", "") if len(of) == 1 else ("are", " of each")
    return (
        f"GPU {span(of)} {verb} held by service {name} ({unit}, {size}{each}): give each service "
        f"`gpus` of its own, or stop that one: opsctl stop {name}"
    )


def span(indices: Iterable[int]) -> str:
    """ "0-3, 6" """
    runs: List[List[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
