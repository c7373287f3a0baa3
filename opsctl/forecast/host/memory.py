"""Host memory as the engine's processes leave it. GiB = 2^30 bytes.

MemAvailable is what counts: "free" leaves the page cache out, and huge pages that are reserved are
never part of it.
"""

from __future__ import annotations

from opsctl.forecast.device.settings import parsed
from opsctl.forecast.host import versions
from opsctl.forecast.values import ANY, BEFORE, ESTIMATED, MEASURED, Case, Figure
from opsctl.onhost.expect import GiB

# Resident memory of one scheduler process beside its pools: 8 processes and the system took about
# 36.4 GiB in the reference deployment. The band is a judgement.
PROCESS = int(4.5 * GiB)
PROCESS_BAND = GiB
MEASURED_BAND = 0.1  # of a measured process: what another start may differ by, a judgement
# The engine itself keeps this much of MemAvailable out of its pools (all versions).
RESERVE = 10 * GiB


def process(case: Case) -> Figure:
    """Bytes that one rank's processes hold beside its pools."""
    found = case.measured.process
    if found is not None:
        band = int(found * MEASURED_BAND)
        return Figure(found, found - band, found + band, MEASURED, case.measured.source)
    return Figure(
        PROCESS, PROCESS - PROCESS_BAND, PROCESS + PROCESS_BAND, ESTIMATED, "a usual scheduler"
    )


def visible(case: Case) -> int | None:
    """What the engine's own test sees before this service takes anything: MemAvailable, and from
    0.5.21 on no more than the cgroup leaves."""
    memory = case.memory
    if memory is None:
        return None
    if memory.cgroup_headroom is None or parsed(case.version) < versions.CGROUPS:
        return memory.available
    return min(memory.available, memory.cgroup_headroom)


def after_processes(case: Case) -> Figure | None:
    """What it sees when all ranks are ready to take their pools: services that are deployed before
    it have taken theirs by then, those that are deployed after it have not, and others may."""
    start, memory = visible(case), case.memory
    if start is None or memory is None:
        return None
    one, ranks = process(case), len(case.ranks)
    start -= sum(other.bytes for other in memory.others if other.when == BEFORE)
    others = sum(other.bytes for other in memory.others if other.when == ANY)
    assert one.least is not None and one.most is not None
    return Figure(
        start - ranks * one.value,
        start - ranks * one.most - others,
        start - ranks * one.least,
        one.basis,
        "MemAvailable with this service stopped, less its processes",
    )
