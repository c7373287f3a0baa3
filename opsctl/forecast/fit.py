"""Whether host and GPUs survive the start: what is left, and a verdict.

MemAvailable is what counts: "free" leaves the page cache out. GiB = 2^30 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsctl.forecast.device.settings import parsed
from opsctl.forecast.host import numa, races, versions
from opsctl.forecast.host.memory import process
from opsctl.forecast.slack import beside, demanded, table
from opsctl.forecast.values import Case, Device, HostPool, Other
from opsctl.onhost.expect import GiB, count, gib, left

# Of what a running service may still take, less is the doubt of its own forecast. A judgement.
LITTLE = 1 << 30
CENT = GiB // 100
FITS, TIGHT, NOT, UNKNOWN = "fits", "tight", "does not fit", "unknown"
_WORST = (FITS, TIGHT, UNKNOWN, NOT)


@dataclass(frozen=True, slots=True)
class Fit:
    """`available_after` and its band in bytes; None where the pools are not known.

    `verdict` is the worse of `ram` and `gpu`, and `reasons` are those of both.
    """

    verdict: str
    available_after: int | None
    least: int | None
    reasons: tuple[str, ...]
    ram: str = UNKNOWN
    gpu: str = UNKNOWN


class _Judged:
    """A verdict that only gets worse, and why."""

    __slots__ = ("reasons", "verdict")

    def __init__(self) -> None:
        self.verdict = FITS
        self.reasons: list[str] = []

    def add(self, verdict: str, reason: str) -> None:
        self.verdict = _worse(self.verdict, verdict)
        if reason and reason not in self.reasons:
            self.reasons.append(reason)


def judge(
    case: Case,
    pools_by_rank: Mapping[str, Sequence[HostPool] | None],
    devices: Sequence[Device] = (),
    *,
    swap: str = "",
) -> Fit:
    """`pools_by_rank`: of every rank on this host; None where a rank's pools are not known.
    `devices`: one a pipeline stage; without them nothing is said of the GPUs. `swap`: memory.swap
    of the description."""
    ram, after, least = _ram(case, pools_by_rank, swap)
    gpu = _gpu(case, devices)
    verdict = _worse(ram.verdict, gpu.verdict) if devices else ram.verdict
    reasons = (*ram.reasons, *gpu.reasons)
    return Fit(verdict, after, least, reasons, ram.verdict, gpu.verdict if devices else UNKNOWN)


# -- RAM ------------------------------------------------------------------------------------------


def _ram(
    case: Case, by_rank: Mapping[str, Sequence[HostPool] | None], swap: str
) -> tuple[_Judged, int | None, int | None]:
    found, memory = _Judged(), case.memory
    known = [pools for pools in by_rank.values() if pools is not None]
    for pools in known:
        for pool in pools:
            if pool.refused:
                found.add(NOT, pool.refused)
    unknown = len(known) < len(by_rank) or any(p.pinned is None for pools in known for p in pools)
    if found.verdict != NOT:
        if memory is None:
            found.add(UNKNOWN, "the host's memory is not known")
        if case.flags.get("device") == "cpu":
            found.add(UNKNOWN, "on a CPU the weights and the KV cache take host memory too")
        if unknown:
            found.add(UNKNOWN, "the host pools are not known")
    if unknown or memory is None or found.verdict == UNKNOWN:
        return found, None, None
    taken, most = _taken(known), _taken(known, most=True)
    ranks, one = len(by_rank), process(case)
    assert one.most is not None
    if memory.hugepages and _in_huge_pages(case, found, sum(most)):
        taken, most = [0] * ranks, [0] * ranks
    others = sum(other.bytes for other in memory.others)
    for other in memory.others:
        found.add(FITS, _kept(other))
    after = memory.available - others - sum(taken) - ranks * one.value
    least = memory.available - others - sum(most) - ranks * one.most
    _left(found, after, least, case.min_available, "")
    if memory.cgroup_headroom is not None:
        change = memory.cgroup_headroom - memory.available + others
        _left(found, after + change, least + change, 0, " of the cgroup's limit")
    refused, why = _engine(case, known)
    found.add(NOT if refused else TIGHT if why else FITS, why)
    sure, why = numa.lacking(case, [size + one.most for size in most])
    found.add(NOT if sure else TIGHT if why else FITS, why)
    if memory.swap_used:
        words = f"{gib(memory.swap_used)} of swap is in use already"
        found.add(TIGHT if swap == "forbid" else FITS, words)
    return found, after, least


def _left(found: _Judged, after: int, least: int, demanded: int, of: str) -> None:
    if after < demanded:
        found.add(NOT, f"{_would(after, of)}, {gib(demanded)} demanded")
    elif least < demanded:
        band = f"{gib(least)} to {gib(after)}{of} would be left"
        if least < 0:
            band = f"{_would(after, of)}, and perhaps {left(least)}"
        found.add(TIGHT, f"{band}, {gib(demanded)} demanded")


def _would(size: int, of: str) -> str:
    return f"{gib(size)}{of} would be left" if size >= 0 else left(size, of)


def _kept(other: Other) -> str:
    """Named where it matters: what is kept for somebody else is not there for this service."""
    if abs(other.bytes) < LITTLE:
        return ""
    why = f": {other.why}" if other.why else ""
    if other.bytes < 0:
        return f"{gib(-other.bytes)} of RAM come back from {other.service}{why}"
    return f"{gib(other.bytes)} of RAM are kept for {other.service}{why}"


def _taken(known: Sequence[Sequence[HostPool]], *, most: bool = False) -> list[int]:
    """Bytes of each rank. Ranks of a stage share one tuple of pools, so it is added up once."""
    sums: dict[int, int] = {}
    for pools in known:
        if id(pools) not in sums:
            sums[id(pools)] = sum(
                (pool.most if most and pool.most is not None else pool.pinned) or 0
                for pool in pools
            )
    return [sums[id(pools)] for pools in known]


def _in_huge_pages(case: Case, found: _Judged, total: int) -> bool:
    """Whether the pools lie in reserved huge pages, which are no part of MemAvailable."""
    memory = case.memory
    assert memory is not None
    if parsed(case.version) < versions.HUGE_PAGES or not case.env.get("SGLANG_HUGEPAGE_SIZE"):
        found.add(
            FITS, f"{gib(memory.hugepages)} are reserved as huge pages: nothing here uses them"
        )
        return False
    if memory.hugepages >= total:
        return True
    found.add(
        FITS,
        f"the pools need {gib(total)} of huge pages and {gib(memory.hugepages)} are reserved: "
        "they are taken from ordinary memory",
    )
    return False


def _engine(case: Case, known: Sequence[Sequence[HostPool]]) -> tuple[bool, str]:
    """Pools that the engine sized by what it found are booked, not tested again."""
    if any(pool.auto and not pool.size for pools in known for pool in pools):
        return False, ""
    sizes: dict[int, tuple[int, ...]] = {}
    for pools in known:
        if id(pools) not in sizes:
            sizes[id(pools)] = tuple(pool.bytes or 0 for pool in pools)
    return races.refuses(case, [sizes[id(pools)] for pools in known])


# -- GPU ------------------------------------------------------------------------------------------


def _gpu(case: Case, devices: Sequence[Device]) -> _Judged:
    found = _Judged()
    # Else a start with the same settings of the GPU has been seen.
    if case.measured.tokens is None or case.gpu_headroom is not None:
        _room(case, devices, found)
    for device in devices:
        _promised(case, device, found)
    return found


def _room(case: Case, devices: Sequence[Device], found: _Judged) -> None:
    for device in devices:
        rest = device.rest
        if rest is None or device.tokens is None:
            found.add(UNKNOWN, "")
        elif rest.most is not None and rest.most <= 0:
            found.add(NOT, "the weights leave no GPU memory for the KV cache: the start would fail")
        elif empty(device):  # only the lucky edge of the band would start
            found.add(
                NOT,
                "by the best estimate the weights leave no GPU memory for the KV cache: the start "
                "would fail",
            )
        elif rest.least is not None and rest.least <= 0:
            found.add(TIGHT, "the weights may leave no GPU memory for the KV cache")
        _beside(case, device, found)


def _promised(case: Case, device: Device, found: _Judged) -> None:
    """A context that is written promises that a request may be as long. The engine starts all the
    same. The model's own context is nobody's promise: an advisory tells that."""
    context, tokens = case.flags.get("context-length"), device.tokens
    if context is None or tokens is None or (tokens.least or 0) >= int(context):
        return
    sure = "" if tokens.least == tokens.value else "are sure to "
    found.add(
        TIGHT,
        f"{count(int(context))} tokens of one request (context-length): {count(tokens.least or 0)} "
        f"{sure}fit in a GPU",
    )


def empty(device: Device) -> bool:
    """Whether the best estimate leaves no token."""
    rest, tokens = device.rest, device.tokens
    return rest is not None and tokens is not None and (rest.value <= 0 or tokens.value < 1)


def _beside(case: Case, device: Device, found: _Judged) -> None:
    free, wanted = beside(case, device), demanded(case)
    if free is None or free.least is None:
        return
    if free.value < 0:
        words = f"{gib(-free.value)} of GPU memory lacks beside weights, pools and graphs"
        found.add(NOT, words + _of_table(case, device, -free.value))
    elif free.least < wanted:
        sure = "" if free.least > 0 else f", by the best estimate {gib(free.value)}"
        words = f"{_down(free.least)} of GPU memory is left beside weights, pools and graphs{sure}"
        found.add(TIGHT, f"{words}: {gib(wanted)} for activations are {_asked(case)}")


def _asked(case: Case) -> str:
    return "advised" if case.gpu_headroom is None else "demanded"


def _down(size: int) -> str:
    """Rounded down, so that what is short of a demand never looks like it."""
    return gib(max(0, size) // CENT * CENT)


def _of_table(case: Case, device: Device, lacking: int) -> str:
    """The table of requests, where without it nothing would lack."""
    size = table(case, device)
    if size is None or size < lacking:
        return ""
    return f": the table of requests alone takes {gib(size)} (context-length, max-running-requests)"


def _worse(one: str, other: str) -> str:
    return max(one, other, key=_WORST.index)
