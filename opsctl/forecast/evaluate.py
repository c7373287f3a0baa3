"""A Case → everything that it will take, as figures: the one entry that all else stands on.

No text is built here: ten thousand evaluations a second a core is the goal (tools/bench_forecast
.py). Words are made of a Result by those who show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from opsctl.forecast import fit as fits
from opsctl.forecast.device import device
from opsctl.forecast.fit import Fit
from opsctl.forecast.host import host_pools
from opsctl.forecast.values import Case, Device, HostPool, NoForecast

Pools = tuple[HostPool, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a case will take. One entry of `devices` and `pools` for each pipeline stage that has
    ranks on this host; pools are None where the engine's rule is not sure, and `refused` says why.
    """

    devices: tuple[Device, ...]
    pools: tuple[Pools | None, ...]
    by_rank: tuple[tuple[str, int], ...]  # (rank, place of its stage in the other two)
    fit: Fit
    refused: tuple[str, ...] = ()

    @property
    def device(self) -> Device:
        """The first stage's; where all stages are alike, that of every rank."""
        return self.devices[0]

    @property
    def per_rank(self) -> int | None:
        """Bytes of all host pools of the rank that takes most, as logged; None: not known."""
        sums = [_logged(pools) for pools in self.pools]
        known = [size for size in sums if size is not None]
        return max(known, default=0) if len(known) == len(sums) else None

    @property
    def host_total(self) -> int | None:
        """Bytes of the host pools of all ranks, as they are really taken; None: not known."""
        total = 0
        for _, place in self.by_rank:
            for pool in self.pools[place] or ():
                if pool.pinned is None:
                    return None
                total += pool.pinned
        return None if None in self.pools else total

    @property
    def host_tokens(self) -> int | None:
        """Tokens of the host pool of the KV cache; None without one, or where not known."""
        return next((pool.tokens for pool in self.pools[0] or () if pool.name == "kv"), None)

    @property
    def prefix(self) -> int | None:
        """Tokens of prefixes that the cache can hold: what the GPU holds is in the host too."""
        tokens = self.device.tokens
        if tokens is None:
            return None
        return max(tokens.value, self.host_tokens or 0)


def evaluate(case: Case, *, steps: bool = False, swap: str = "") -> Result:
    """`swap`: memory.swap of the description. Raises NoForecast where nothing can be said of the
    GPU side of the model."""
    devices = device(case, steps=steps)
    pools: list[Pools | None] = []
    refused: list[str] = []
    for one in devices:
        try:
            pools.append(host_pools(case, one))
        except NoForecast as reason:
            pools.append(None)
            refused.append(str(reason))
    by_rank = places(case.ranks, tuple(one.stage for one in devices))
    fit = fits.judge(case, {rank: pools[place] for rank, place in by_rank}, devices, swap=swap)
    return Result(devices, tuple(pools), by_rank, fit, tuple(dict.fromkeys(refused)))


def _logged(pools: Pools | None) -> int | None:
    sizes = [pool.bytes for pool in pools or ()]
    return None if pools is None or None in sizes else sum(size or 0 for size in sizes)


@cache
def places(ranks: tuple[str, ...], stages: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
    """Each rank with the place of its pipeline stage in `stages`."""
    where = {f"PP{stage}": n for n, stage in enumerate(stages)}
    return tuple(
        (rank, next((where[part] for part in rank.split() if part in where), 0)) for rank in ranks
    )
