"""Who is on the GPUs that a release will take: strangers, and other services of opsctl. Pure.

A service has its GPUs for itself alone, as descriptions of one host are judged, too: what a second
engine finds on a card is neither what was forecast for it nor what it found at its last start.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Sequence

from opsctl.onhost.expect import gib

# A process may open a context, and no more, on cards that it does not use. A judgement.
CONTEXT = 1 << 30  # bytes


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
    who: Callable[[int], str] = "PID {}".format,
) -> List[str]:
    """`held`: who holds how much of which card. `owners`: PID → unit, of all units of ours.
    `leaving`: those of them that will have left, or changed, by the time that this one starts.
    `who`: a process in words."""
    wanted, gpus = set(cards(manifest)), manifest.get("gpus")
    strangers: Dict[int, Dict[int, int]] = {}
    services: Dict[str, Dict[int, int]] = {}
    for process in held:
        pid, gpu, size = process["pid"], process["gpu"], int(process["memory"])
        unit = owners.get(pid, "")
        if unit and unit not in leaving and gpu in wanted:
            of = services.setdefault(unit, {})
            of[gpu] = of.get(gpu, 0) + size
        elif not unit and pid > 0 and (gpus is None or gpu < 0 or gpu in gpus):  # 0: hidden
            strangers.setdefault(pid, {})[gpu] = size
    found = [f"{_held(of)} by {who(pid)}" for pid, of in strangers.items()]
    for unit, of in services.items():
        used = {gpu: size for gpu, size in of.items() if size >= CONTEXT}
        found += [_told(unit, used)] if used else []
    return found


def _told(unit: str, of: Mapping[int, int]) -> str:
    name = unit[len("sglang-") : -len(".service")] if unit.startswith("sglang-") else unit
    return (
        f"{_held(of)} by service {name}: give each service `gpus` of its own, or stop that one "
        f"on the host: systemctl stop {unit}"
    )


def _held(of: Mapping[int, int]) -> str:
    """ "71.50 GiB of each of GPU 0-7 are held" """
    least, most = min(of.values()), max(of.values())
    size = gib(most) if least == most else f"{gib(least)} to {gib(most)}"
    known = [gpu for gpu in of if gpu >= 0]
    where = "a GPU" if not known else f"GPU {span(known)}"
    return f"{size} of {'each of ' if len(known) > 1 else ''}{where} are held"


def span(indices: Iterable[int]) -> str:
    """ "0-3, 6" """
    runs: List[List[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
