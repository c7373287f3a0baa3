"""Why the three columns differ, in words. Pure.

Only what is told by the figures themselves: each line names what it was read from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opsctl.forecast import hostside
from opsctl.forecast.columns import GIB, HELD, LEFT, Cell, RankMemory, ServiceMemory
from opsctl.forecast.device.settings import parsed
from opsctl.forecast.slack import DRAFT_CHARGED
from opsctl.onhost.expect import GB_ROUNDING, GIB_ROUNDING, gb, gib

# MemAvailable moves by this much on a host that does nothing else. A judgement.
QUIET = 2 << 30
# What a driver holds of a GPU without any process on it.
DRIVER = 1 << 30


def explained(said: ServiceMemory, answer: Mapping[str, Any]) -> tuple[str, ...]:
    """For people, the gravest first; empty where all three agree. `answer`: the host's."""
    if not said.ranks:
        return tuple(_silent(said))
    lines = [*_ranks(said), *_units(said), *_draft(said), *_pinned(said)]
    lines += [*_gpus(said, answer), *_processes(said), *_ram(said, answer)]
    return tuple(dict.fromkeys(lines))


def _silent(said: ServiceMemory) -> Iterator[str]:
    if said.state in ("active", "activating", "reloading"):
        yield "no rank of this start has logged anything yet"
    else:
        yield f"it does not run (the unit is {said.state or 'absent'}): nothing is logged or held"


def _ranks(said: ServiceMemory) -> Iterator[str]:
    if said.check is not None and said.check["status"] == "fail":
        yield f"not as forecast: {said.check['detail']}"
    elif said.check is not None and said.check["status"] != "pass":
        yield f"not judged: {said.check['detail']}"
    elif not (said.facts.get("manifest") or {}).get("ranks"):
        yield "not judged: opsctl did not write what runs, so nothing was forecast for it"
    elif said.check is None and said.facts.get("taken_over"):
        yield (
            "not judged: taken over as it ran, and the journal does not hold the end of its start "
            "(opsctl verify asks the engine)"
        )
    elif said.check is None:
        yield "the start is not over: its ranks are not judged yet"
    if said.missing:
        yield f"nothing logged by {', '.join(said.missing)}"
    manifest: Mapping[str, Any] = said.facts.get("manifest") or {}
    if manifest.get("ranks") and not manifest.get("expect"):
        yield "this release carries no forecast"
    rounded = {
        cell.name
        for rank in said.ranks
        for cell in rank.cells
        if cell.forecast is not None and cell.logged is not None and _rounding(cell)
    }
    if rounded:
        names = ", ".join(sorted(rounded))
        yield f"the log has two decimals: {names} differ from the forecast by no more than that"


def _rounding(cell: Cell) -> bool:
    allowed = 2 * GIB_ROUNDING if cell.unit == GIB else GB_ROUNDING
    return 0 < abs((cell.forecast or 0) - (cell.logged or 0)) <= allowed


def _units(said: ServiceMemory) -> Iterator[str]:
    rank = said.ranks[0]
    pool, cache = rank.get("host pool"), rank.get("KV cache")
    if pool and cache and pool.logged and cache.logged:
        yield (
            f'the log writes "GB" for both: the KV cache is counted in GiB (2^30), host pools in '
            f"GB (10^9): {gb(pool.logged)} are {gib(pool.logged)}"
        )


def _draft(said: ServiceMemory) -> Iterator[str]:
    manifest: Mapping[str, Any] = said.facts.get("manifest") or {}
    version = str((manifest.get("engine") or {}).get("version") or "")
    beside = [
        sum(cell.logged or 0 for cell in rank.cells if cell.name in ("pool draft", "draft weights"))
        for rank in said.ranks
    ]
    if version and max(beside) and parsed(version) < DRAFT_CHARGED:
        yield (
            f"{gib(max(beside))} of the draft model a GPU lie outside of mem-fraction-static: "
            f"{version} sizes its pools before it loads the draft (from 0.5.14 on they count)"
        )


def _pinned(said: ServiceMemory) -> Iterator[str]:
    expect = (said.facts.get("manifest") or {}).get("expect") or {}
    for pool in expect.get("host_pools") or ():
        size, pinned = pool.get("bytes"), pool.get("pinned")
        if size and pinned and pinned > size:
            yield (
                f"host pool {pool['name']}: the log says {gb(size)}, and this version takes "
                f"{gb(pinned)} for it"
            )


# -- GPUs -----------------------------------------------------------------------------------------


def _gpus(said: ServiceMemory, answer: Mapping[str, Any]) -> Iterator[str]:
    rests = [cell.shown for rank in said.ranks if (cell := rank.get("the rest")) and cell.shown]
    if rests and min(rests) >= 0:
        yield (
            f"the rest of a GPU is {_span(rests)}: CUDA context, graphs, workspaces and "
            "activations, which no line of the log counts"
        )
    if rests and min(rests) < 0:
        yield (
            f"nvidia-smi shows up to {gib(-min(rests))} less than was logged: what was logged "
            "has been given back, or belongs to another process"
        )
    unseen = [rank.rank for rank in said.ranks if rank.gpu is None]
    if unseen and answer.get("gpus"):
        yield (
            f"no process on a GPU is known as {', '.join(unseen)}: nvidia-smi hides PIDs from "
            "inside a container"
        )
    mine = {p["pid"] for p in said.facts.get("processes") or ()}
    for process in answer.get("gpu_processes") or ():
        used = {rank.gpu for rank in said.ranks}
        if process["pid"] not in mine and process["gpu"] in used:
            who = f"process {process['pid']} ({process.get('comm') or 'unknown'})"
            size = gib(process["memory"])
            yield f"GPU {process['gpu']}: {who} is not this service's and holds {size}"
    yield from _beyond(said.ranks, answer)


def _beyond(ranks: Sequence[RankMemory], answer: Mapping[str, Any]) -> Iterator[str]:
    """Memory of a GPU that no process accounts for."""
    held: dict[int, int] = {}
    for process in answer.get("gpu_processes") or ():
        held[process["gpu"]] = held.get(process["gpu"], 0) + int(process["memory"])
    ours = {rank.gpu for rank in ranks}
    for card in answer.get("gpus") or ():
        more = int(card.get("memory_used") or 0) - held.get(card["index"], 0)
        if card["index"] in ours and more > DRIVER:
            yield f"GPU {card['index']}: {gib(more)} are used beyond what its processes show"


def _span(values: Sequence[int]) -> str:
    least, most = gib(min(values)), gib(max(values))
    return least if least == most else f"{least} to {most}"


# -- RAM ------------------------------------------------------------------------------------------


def _processes(said: ServiceMemory) -> Iterator[str]:
    found = [(rank, cell) for rank in said.ranks if (cell := rank.get("process"))]
    without = [
        rank.rank
        for rank, cell in found
        if cell.shown is not None and cell.logged is not None and cell.shown < cell.logged
    ]
    if without:
        yield (
            f"the resident memory of {_some(without)} is less than its pools: a process does not "
            "show what a driver pinned for it, or huge pages (and a rehearsal engine holds nothing)"
        )
    grown = [
        rank.rank
        for rank, cell in found
        if cell.shown is not None and cell.most is not None and cell.shown > cell.most
    ]
    if grown:
        yield (
            f"the processes of {_some(grown)} hold more beside their pools than a scheduler "
            "was forecast to"
        )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} ranks)"


def _ram(said: ServiceMemory, answer: Mapping[str, Any]) -> Iterator[str]:
    memory: Mapping[str, int] = answer.get("memory") or {}
    left = next((cell for cell in said.host if cell.name == LEFT), None)
    if left is not None and left.forecast is not None and left.shown is not None:
        least = left.least if left.least is not None else left.forecast
        gap = left.shown - left.forecast
        if left.shown < least - QUIET:
            yield (
                f"{gib(-gap)} less RAM is left than forecast, {gib(least - left.shown)} less than "
                f"its lower edge: {_takers(said, answer)}"
            )
        elif gap > QUIET:
            yield (
                f"{gib(gap)} more RAM is left than forecast: the processes take less than "
                "estimated, or something else has ended since"
            )
    free, available = memory.get("free"), memory.get("available")
    if free is not None and available is not None and available - free > QUIET:
        yield (
            f"{gib(free)} are free and {gib(available)} available: page cache is given back when "
            "it is needed"
        )
    for other in hostside.others(answer.get("others") or ()):
        if other.service != said.service and other.bytes > QUIET:
            yield (
                f"the forecast keeps {gib(other.bytes)} of RAM for {other.service}, which does not "
                f"hold them now: {other.why}"
            )
    if memory.get("hugetlb"):
        yield f"{gib(memory['hugetlb'])} are reserved as huge pages, and are never available"
    if memory.get("swap_used"):
        yield f"{gib(memory['swap_used'])} of swap are in use"


def _takers(said: ServiceMemory, answer: Mapping[str, Any]) -> str:
    others = {
        one["service"]: int((one.get("memory") or {}).get("bytes") or 0)
        for one in answer.get("services") or ()
        if one["service"] != said.service
    }
    told = [f"{name} holds {gib(size)}" for name, size in others.items() if size > QUIET]
    held = next((cell.shown for cell in said.host if cell.name == HELD), None)
    if held:
        told.append(f"this service holds {gib(held)}")
    return "; ".join(told) or "no service of opsctl holds it"
