"""`--explain`: each figure derived step by step, with units and where it comes from.

GPU memory is counted in GiB (2^30 bytes) and host pools in GB (10^9 bytes), as the engine logs
them; it writes "GB" for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from opsctl.forecast.device.settings import parsed
from opsctl.forecast.host.memory import process
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.values import Case, Device, Figure, HostPool
from opsctl.onhost.expect import count, gb, gib, left, span

WHOLE_PAGE_MORE = (0, 5, 5, 3)  # from here on a page is added beyond the whole ones


def explain(said: Outlook) -> tuple[str, ...]:
    """One thought a line; a line that begins with "# " opens a section."""
    return tuple(_lines(said))


def _lines(said: Outlook) -> Iterator[str]:
    result = said.result
    several = len(result.devices) > 1
    for n, device in enumerate(result.devices):
        stage = f" of pipeline stage PP{device.stage}" if several else ""
        yield f"# GPU memory of one rank{stage}"
        yield from device.steps
        pools = result.pools[n]
        if pools:
            yield f"# host memory of one rank{stage}"
            for pool in pools:
                other = next((one.tokens for one in pools if one.name == pool.like), None)
                yield from _pool(said.case, device, pool, other)
    yield "# RAM of the host"
    yield from _ram(said)
    if said.start:
        yield "# start"
        for name, figure in said.start.items():
            yield f"{name}: {_span(figure)}, {figure.basis}: {figure.source}"


def _pool(case: Case, device: Device, pool: HostPool, other: int | None) -> Iterator[str]:
    """How HostKVCache of this version sizes the pool. `other`: tokens of the pool that it is
    like."""
    if pool.refused:
        yield pool.refused
        return
    name = f"pool {pool.name}"
    if pool.tokens is None or pool.bytes is None:
        yield f"{name}: the size is not known before the tokens of the GPU are"
        return
    if pool.like:
        own = "" if other == pool.tokens else ", divided and rounded once more"
        yield f"{name}: takes the tokens of pool {pool.like}{own}: {count(pool.tokens)}"
    elif pool.size:
        yield (
            f"{name}: hicache-size {pool.size:g} GB / {count(pool.bytes_per_token)} B a token, "
            f"{_paged(case, pool)} = {count(pool.tokens)} tokens"
        )
    else:
        yield from _by_ratio(case, device, pool, name)
    yield (
        f"{name}: {count(pool.tokens)} {_unit(pool)} × {count(pool.bytes_per_token)} B = "
        f"{gb(pool.bytes)} (10^9 B) = {gib(pool.bytes)}"
    )
    if pool.pinned is not None and gib(pool.pinned) != gib(pool.bytes):
        yield f"{name}: really takes {gib(pool.pinned)}, by how {case.version} allocates it"


def _unit(pool: HostPool) -> str:
    return "slots" if pool.name == "mamba" else "tokens"


def _by_ratio(case: Case, device: Device, pool: HostPool, name: str) -> Iterator[str]:
    rows = next((p.rows for p in device.pools if p.name == pool.of), device.tokens)
    if pool.auto:
        band = (
            ""
            if None in (pool.least, pool.most)
            else f", {gb(pool.least or 0)} to {gb(pool.most or 0)}"
        )
        yield f"{name}: {case.version} chooses the ratio by the memory that it finds{band}"
        return
    there = count(rows.value) if rows else "?"
    yield (
        f"{name}: int({there} × hicache-ratio {pool.ratio:g}), {_paged(case, pool)} = "
        f"{count(pool.tokens or 0)} {_unit(pool)}"
    )


def _paged(case: Case, pool: HostPool) -> str:
    page = f"1 {_unit(pool)[:-1]}" if pool.page == 1 else f"{pool.page} tokens"
    if parsed(case.version) < WHOLE_PAGE_MORE:
        return f"down to whole pages of {page}"
    return f"whole pages of {page} and one more"


def _ram(said: Outlook) -> Iterator[str]:
    case, fit = said.case, said.result.fit
    if case.memory is None:
        yield "not known: the host's memory was not told"
        return
    memory, ranks, one = case.memory, len(case.ranks), process(case)
    yield f"{gib(memory.available)}: MemAvailable with this service stopped, page cache counted"
    yield (
        f"− {ranks} × {gib(one.value)} for the processes of a rank beside its pools"
        f"{_band(one)}, {one.basis}: {one.source}"
    )
    for other in memory.others:
        size, why = other.bytes, f" ({other.why})" if other.why else ""
        sign, what = ("−", "will still take") if size >= 0 else ("+", "will have given back")
        yield f"{sign} {gib(abs(size))} that {other.service} {what}{why}"
    total = said.result.host_total
    if total is not None:
        yield f"− {gib(total)} for the pools of all ranks"
    if fit.available_after is not None:
        least = "" if fit.least is None else f", at worst {left(fit.least)}"
        yield f"= {left(fit.available_after)}{least}; {gib(case.min_available)} demanded"
    yield f"verdict: {fit.verdict}"
    yield from fit.reasons


def _band(figure: Figure) -> str:
    if figure.least is None or figure.most is None:
        return ""
    return f" ({gib(figure.least)} to {gib(figure.most)})"


def _span(figure: Figure) -> str:
    if figure.least is None or figure.most is None or figure.least == figure.most:
        return span(figure.value)
    return f"{span(figure.value)} ({span(figure.least)} to {span(figure.most)})"
