"""The engine's own test of host memory, and what order of ranks makes of it.

Sources: HostKVCache.__init__ and MambaPoolHost.__init__ of all releases, `host_memory_budget_bytes`
of pool_host/base.py (0.5.19+), hicache_auto_size.py (0.5.21+). Each pool is tested alone when it is
about to be taken, against MemAvailable less 10 GiB at that moment; nobody adds up the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from opsctl.forecast.device.settings import parsed
from opsctl.forecast.host import versions
from opsctl.forecast.host.memory import RESERVE, after_processes
from opsctl.forecast.values import Case
from opsctl.onhost.expect import gb

Sizes = Sequence[int]  # bytes of one rank's pools, in the order in which they are taken


def refuses(case: Case, ranks: Sequence[Sizes]) -> tuple[bool, str]:
    """(surely refused, why); (False, why) if it depends on the order; (False, "") if never."""
    free = after_processes(case)
    if free is None or not any(ranks):
        return False, ""
    assert free.least is not None and free.most is not None
    share = len(ranks) if parsed(case.version) >= versions.BY_RANKS else 1
    total = sum(sum(sizes) for sizes in ranks)
    surely = maybe = 0
    for sizes in dict.fromkeys(map(tuple, ranks)):
        before = 0
        for size in sizes:
            if share * size + before > free.most - RESERVE:
                surely = max(surely, size)
            if share * size + before + total - sum(sizes) > free.least - RESERVE:
                maybe = max(maybe, size)
            before += size
    if surely:
        seen = (free.most - RESERVE) // share
        sees = gb(seen) if seen >= 0 else f"none, {gb(-seen)} less than it keeps free"
        return True, f"{case.version} refuses a host pool of {gb(surely)}: it sees {sees}"
    if not maybe:
        return False, ""
    if share == 1:
        return False, (
            f"{case.version} may refuse a host pool of {gb(maybe)}: "
            "a rank that comes late finds the others' pools gone already"
        )
    safe = max(0, free.least - RESERVE) // (2 * share - 1)
    return False, (
        f"{case.version} may refuse host pools above {gb(safe)} a rank, depending on the order of "
        "ranks: each takes its share of what the others have left"
    )
