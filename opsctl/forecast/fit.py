"""Whether the host survives the start: what is left of MemAvailable, and a verdict.

MemAvailable is what counts: "free" leaves the page cache out. GiB = 2^30 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsctl.onhost.expect import GiB, gb, gib, version_key

# Resident memory of one scheduler process beside its pools: 8 processes and the system took about
# 36.4 GiB in the reference deployment. The band is a judgement.
PROCESS = int(4.5 * GiB)
PROCESS_BAND = GiB
# The engine itself keeps this much of MemAvailable out of its pools (all versions).
ENGINE_RESERVE = 10 * GiB

FITS, TIGHT, NOT, UNKNOWN = "fits", "tight", "does not fit", "unknown"


@dataclass(frozen=True)
class Fit:
    """`available_after` and its band in bytes; None where the pools are not known."""

    verdict: str
    available_after: int | None
    least: int | None
    reasons: tuple[str, ...]


def stopped(
    memory: Mapping[str, int],
    running: Mapping[str, Any] | None = None,
    held: Mapping[str, Any] | None = None,
) -> int:
    """MemAvailable as it were with this service stopped: what it holds comes back.

    `held`: the kernel's count of the service's memory. It is not believed if it is less than the
    pools that the running start has logged: then those count, and a process a rank.
    """
    ranks = ((running or {}).get("ranks") or {}).values()
    pools = sum(int(pool["bytes"]) for rank in ranks for pool in rank.get("host_pools") or [])
    counted = int((held or {}).get("bytes") or 0)
    if not counted or counted < pools:
        counted = pools + len(ranks) * PROCESS
    return int(memory["available"]) + counted


def judge(
    available: int, ranks: int, pools: Sequence[int] | None, threshold: int, version: str
) -> Fit:
    """`available`: MemAvailable with the service stopped; `pools`: bytes of one rank's pools,
    None if they are not known."""
    if pools is None:
        return Fit(UNKNOWN, None, None, ("the host pools are not known",))
    after = available - ranks * (sum(pools) + PROCESS)
    least = after - ranks * PROCESS_BAND
    reasons = []
    verdict = FITS
    if after < threshold:
        verdict = NOT
        reasons.append(f"{gib(after)} would be left, {gib(threshold)} demanded")
    elif least < threshold:
        verdict = TIGHT
        reasons.append(f"{gib(least)} to {gib(after)} would be left, {gib(threshold)} demanded")
    refused, why = _engine_refuses(available, ranks, max(pools, default=0), version)
    if why:
        reasons.append(why)
        verdict = NOT if refused else (TIGHT if verdict == FITS else verdict)
    return Fit(verdict, after, least, tuple(reasons))


def _engine_refuses(available: int, ranks: int, pool: int, version: str) -> tuple[bool, str]:
    """The engine's own test of host memory: (surely refused, why).

    Up to 0.5.18 each rank compares its pool with all that is available less 10 GiB. From 0.5.19
    on it takes its share by ranks, and a rank that comes late finds its peers' pools gone already:
    the same flags may start or fail. Safe is only (A − 10 GiB) / (2 R − 1).
    """
    budget = available - ENGINE_RESERVE
    if version_key(version) < (0, 5, 19):
        if pool > budget:
            return True, f"the engine refuses a pool of {gb(pool)}: it sees {gb(budget)}"
        return False, ""
    if pool * ranks > budget:
        return True, f"the engine refuses {ranks} pools of {gb(pool)}: it sees {gb(budget)}"
    safe = budget // (2 * ranks - 1)
    if pool > safe:
        return False, (
            f"{version} may refuse pools above {gb(safe)} a rank, depending on the order of ranks"
        )
    return False, ""
