"""The forecast as staging needs it: the expectation that travels in a release, the verdict on the
host, and the words for both. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsctl.forecast import start
from opsctl.forecast.calibration import NOT_USED, Typed
from opsctl.forecast.case import case
from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.expected import expected
from opsctl.forecast.figures import weights
from opsctl.forecast.fit import NOT, Fit
from opsctl.forecast.host.memory import process
from opsctl.forecast.notes import notes
from opsctl.forecast.presumed import weighed
from opsctl.forecast.refused import refuse
from opsctl.forecast.values import Case, Device, Figure, HostPool, NoForecast, NoStart
from opsctl.onhost.expect import count, gb, gib, left, span


@dataclass(frozen=True)
class Forecast:
    """`expect` is None where nothing can be said, and `notes` says why. `lines` explain it all.
    `case` and `result`: the figures behind them, None where there are none."""

    expect: dict[str, Any] | None
    fit: Fit | None
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=())
    case: Case | None = None
    result: Result | None = None


def forecast(
    manifest: Mapping[str, Any],
    facts: Mapping[str, Any],
    calibration: Any = None,
    told: Sequence[str] = (),
    size: int | None = None,
) -> Forecast:
    """What this release will take on this host.

    `manifest`: of a release rendered without an expectation. `facts`: the host's answer to the
    verb `facts`. `calibration`: an object or mapping with gpu_free_before, gpu_free_after,
    kv_tokens (or None). `told`: what must be said of them. `size`: model.size, bytes: figures that
    contradict it are not used, and weights are estimated from it then.
    """
    try:
        whole = case(manifest, facts, calibration, asked=Typed(size=size))
        if any(note.startswith(NOT_USED) for note in whole.measured.notes):
            whole, more = weighed(whole, size)
            told = (*told, *more)
        refuse(whole)
        result = evaluate(whole, swap=str(manifest["memory"].get("swap") or ""))
    except NoStart as reason:
        fit = Fit(NOT, None, None, (str(reason),), gpu=NOT)
        return Forecast(None, fit, (str(reason),), (f"Does not start: {reason}.",))
    except NoForecast as reason:
        return Forecast(None, None, (str(reason),), (f"No forecast: {reason}.",))
    phases, timing = start.seconds(whole, result), manifest.get("timing") or {}
    short = start.too_short(phases, timing)
    found = (*told, *notes(whole, result), *([short] if short else []))
    loads = weights(whole)
    expect = {
        **expected(result, found),
        **({"weights": _sized(loads)} if loads is not None else {}),
        "process": _sized(process(whole)),
        "start": start.expected(phases, timing),
    }
    lines = tuple(_lines(result, phases, found))
    return Forecast(expect, result.fit, found, lines, whole, result)


def _sized(figure: Figure) -> dict[str, Any]:
    """Bytes of one rank that no gate judges: what `opsctl memory` lays log and host beside."""
    return {
        "bytes": figure.value,
        "min": figure.least,
        "max": figure.most,
        "basis": figure.basis,
    }


def _lines(result: Result, phases: Mapping[str, Figure], found: tuple[str, ...]) -> Iterator[str]:
    """The forecast as an operator reads it before a deployment, one thought a line."""
    for n, device in enumerate(result.devices):
        stage = f"PP{device.stage}: " if len(result.devices) > 1 else ""
        yield from (f"{stage}{line}" for line in _device(device))
        pools, ranks = result.pools[n], sum(place == n for _, place in result.by_rank)
        yield from (f"{stage}{_pool(pool, ranks)}" for pool in pools or ())
    if result.fit.available_after is not None:
        yield f"{left(result.fit.available_after, ' of host memory')}: {result.fit.verdict}"
    yield from result.fit.reasons
    if total := start.total(phases):
        band = f"{span(total.least or 0)} to {span(total.most or 0)}"
        yield f"ready after {span(total.value)} ({band}), {total.basis}"
    yield from found


def _device(device: Device) -> Iterator[str]:
    yield f"{count(device.cell)} B a token and rank"
    tokens = device.tokens
    if tokens is None:
        yield "tokens: not known before the first start"
        return
    size = gib(tokens.value * device.cell)
    yield f"{count(tokens.value)} tokens = {size} a rank, {tokens.basis}: {tokens.source}"
    for pool in device.pools:
        if pool.name not in ("kv", "indexer"):
            size = gib(pool.bytes.value)
            yield f"pool {pool.name}: {count(pool.rows.value)} rows = {size} a rank"


def _pool(pool: HostPool, ranks: int) -> str:
    if pool.bytes is None:
        how = f"ratio {pool.ratio:g}, " if pool.ratio else ""
        return f"host pool {pool.name}: {how}size not known yet"
    total = pool.bytes * ranks
    return (
        f"host pool {pool.name}: {count(pool.tokens or 0)} tokens = {gb(pool.bytes)} a rank, "
        f"× {ranks} = {gb(total)} = {gib(total)}"
    )
