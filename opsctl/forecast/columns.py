"""Three columns for every figure of memory: what the release was forecast to take, what each rank
of this start logged, what the host shows. Pure.

The forecast is the one that travels in the release: what was promised before the start, not what
would be said today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsctl.forecast.host.memory import PROCESS, PROCESS_BAND
from opsctl.onhost.expect import of_stage

TOKENS, GIB, GB = "tokens", "GiB", "GB"  # how a figure is shown: bytes, but for tokens
HELD = "held by the service"  # without page cache
LEFT = "RAM left"
FORECAST, LOGGED, SHOWN = "forecast", "logged", "shown"

_USUAL = (PROCESS, PROCESS - PROCESS_BAND, PROCESS + PROCESS_BAND)  # of releases that tell none
Three = tuple[int | None, int | None, int | None]  # value, least, most


@dataclass(frozen=True)
class Cell:
    """One figure of one rank in three columns; None: not known there."""

    name: str
    unit: str
    forecast: int | None = None
    least: int | None = None
    most: int | None = None
    logged: int | None = None
    shown: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": TOKENS if self.unit == TOKENS else "bytes",
            "forecast": self.forecast,
            "forecast_band": [self.least, self.most],
            "logged": self.logged,
            "shown": self.shown,
        }


@dataclass(frozen=True)
class RankMemory:
    """`gpu`: its index, None if no process on a GPU is known to be this rank's."""

    rank: str
    gpu: int | None
    pid: int
    cells: tuple[Cell, ...]

    def get(self, name: str) -> Cell | None:
        return next((cell for cell in self.cells if cell.name == name), None)


@dataclass(frozen=True)
class ServiceMemory:
    """`check`: what the gate `ranks` says of it, None while a start is under way, or where nothing
    runs. `missing`: ranks that logged nothing."""

    service: str
    release: str | None
    state: str
    ranks: tuple[RankMemory, ...]
    missing: tuple[str, ...]
    host: tuple[Cell, ...]
    check: Mapping[str, Any] | None
    facts: Mapping[str, Any] = field(repr=False)  # the service's entry of `collect`

    @property
    def differs(self) -> bool:
        return self.check is not None and self.check["status"] == "fail"


def columns(answer: Mapping[str, Any], service: Mapping[str, Any]) -> ServiceMemory:
    """Of one service of a host. `answer`: what it said to `collect --memory`."""
    manifest: Mapping[str, Any] = service.get("manifest") or {}
    running = service.get("state") in ("active", "activating", "reloading")
    logged = ((service.get("start") or {}).get("ranks") or {}) if running else {}
    names = list(manifest.get("ranks") or logged)
    held = {p["pid"]: p for p in answer.get("gpu_processes") or () if p["pid"]}
    processes = {p["pid"]: p for p in service.get("processes") or ()}
    ranks = [
        _rank(name, manifest, logged[name], held, processes) for name in names if name in logged
    ]
    checks = {check["id"]: check for check in service.get("checks") or ()}
    return ServiceMemory(
        str(service["service"]),
        (service.get("release") or {}).get("running"),
        str(service.get("state") or ""),
        tuple(ranks),
        tuple(name for name in names if name not in logged) if running else (),
        tuple(_host(answer, service, manifest, ranks)),
        checks.get("ranks") if running else None,
        service,
    )


def _rank(
    name: str,
    manifest: Mapping[str, Any],
    rank: Mapping[str, Any],
    held: Mapping[int, Mapping[str, Any]],
    processes: Mapping[int, Mapping[str, Any]],
) -> RankMemory:
    expect = of_stage(manifest.get("expect") or {}, name)
    pid = int(rank.get("pid") or 0)
    cells = list(_gpu_cells(expect, rank))
    on_gpu = held.get(pid)
    named = sum(cell.logged or 0 for cell in cells if cell.unit == GIB)
    if on_gpu is not None:
        used = int(on_gpu["memory"])
        cells.append(Cell("GPU used", GIB, logged=named, shown=used))
        cells.append(Cell("the rest", GIB, shown=used - named))
    cells += _host_cells(expect, rank)
    cells.append(_process(expect, rank, processes.get(pid)))
    gpu = None if on_gpu is None or on_gpu["gpu"] < 0 else int(on_gpu["gpu"])
    return RankMemory(name, gpu, pid, tuple(cell for cell in cells if _known(cell)))


def _known(cell: Cell) -> bool:
    return not (cell.forecast is None and cell.logged is None and cell.shown is None)


# -- GPU ------------------------------------------------------------------------------------------


def _gpu_cells(expect: Mapping[str, Any], rank: Mapping[str, Any]) -> Iterator[Cell]:
    kv: Mapping[str, Any] = expect.get("kv") or {}
    row = kv.get("bytes_per_token")
    figures = _three(kv, "tokens")
    yield Cell("KV tokens", TOKENS, *figures, rank.get("kv_tokens"))
    yield Cell("KV cache", GIB, *_times(figures, row), rank.get("kv_bytes"))
    logged = {str(p.get("name")): p.get("bytes") for p in rank.get("other_pools") or ()}
    draft: Mapping[str, Any] = rank.get("draft") or {}
    logged["draft"] = draft.get("kv_bytes")
    planned = {pool["name"]: pool for pool in expect.get("pools") or ()}
    for name in dict.fromkeys([*planned, *(n for n, size in logged.items() if size)]):
        pool = planned.get(name) or {}
        figures = _three(pool, "tokens")
        sizes = _times(figures, pool.get("bytes_per_token"))
        yield Cell(f"pool {name}", GIB, *sizes, logged.get(name))
    weights: Mapping[str, Any] = expect.get("weights") or {}
    yield Cell("weights", GIB, *_three(weights, "bytes"), _weights(rank))
    yield Cell("draft weights", GIB, logged=draft.get("weights_bytes"))


def _three(figure: Mapping[str, Any], value: str) -> Three:
    return figure.get(value), figure.get("min"), figure.get("max")


def _times(figures: Three, row: int | None) -> Three:
    value, least, most = (None if n is None or row is None else n * row for n in figures)
    return value, least, most


def _weights(rank: Mapping[str, Any]) -> int | None:
    """As logged, else by what was free before and after."""
    if rank.get("weights_bytes") is not None:
        return int(rank["weights_bytes"])
    before, after = rank.get("free_before_weights"), rank.get("free_after_weights")
    return None if before is None or after is None else int(before) - int(after)


# -- RAM ------------------------------------------------------------------------------------------


def _host_cells(expect: Mapping[str, Any], rank: Mapping[str, Any]) -> Iterator[Cell]:
    """By name where the log has the names, else in the order in which the engine allocates."""
    planned = list(expect.get("host_pools") or ())
    logged = list(rank.get("host_pools") or ())
    names = {str(pool.get("name")): pool for pool in logged}
    if len(names) < len(logged) or not set(names) <= {pool["name"] for pool in planned}:
        names = {
            str(planned[n]["name"] if n < len(planned) else f"{pool.get('name')} {n + 1}"): pool
            for n, pool in enumerate(logged)
        }
    for pool in planned:
        size = pool.get("bytes")
        least, most = pool.get("least", size), pool.get("most", size)
        seen = names.pop(pool["name"], None)
        found = int(seen["bytes"]) if seen else None
        yield Cell(_titled(pool["name"]), GB, size, least, most, found)
    for name, seen in names.items():
        yield Cell(_titled(name), GB, logged=int(seen["bytes"]))


def _titled(name: str) -> str:
    return "host pool" if name == "kv" else f"host pool {name}"


def _process(
    expect: Mapping[str, Any], rank: Mapping[str, Any], process: Mapping[str, Any] | None
) -> Cell:
    """Resident memory of the rank's process: its pools, and what a scheduler takes beside them."""
    pools = expect.get("host_pools")
    sizes = [pool.get("pinned") or pool.get("bytes") for pool in pools or ()]
    beside = expect.get("process") or {}
    one, least, most = _three(beside, "bytes") if beside else _USUAL
    logged = sum(int(pool["bytes"]) for pool in rank.get("host_pools") or ())
    shown = int(process["rss"]) if process else None
    if pools is None or None in sizes:
        return Cell("process", GIB, logged=logged or None, shown=shown)
    total = sum(sizes)
    return Cell(
        "process",
        GIB,
        None if one is None else total + one,
        None if least is None else total + least,
        None if most is None else total + most,
        logged or None,
        shown,
    )


def _host(
    answer: Mapping[str, Any],
    service: Mapping[str, Any],
    manifest: Mapping[str, Any],
    ranks: Sequence[RankMemory],
) -> Iterator[Cell]:
    expect: Mapping[str, Any] = manifest.get("expect") or {}
    logged = sum(c.logged or 0 for r in ranks for c in r.cells if c.name.startswith("host pool"))
    held: Mapping[str, Any] = service.get("memory") or {}
    total = expect.get("host_total")
    if total or logged:
        yield Cell("host pools of all ranks", GB, total, total, total, logged or None)
    if ranks:
        yield Cell(HELD, GIB, shown=held.get("bytes"))
        for part, title in (("anon", "of it anonymous"), ("shmem", "of it shared")):
            if held.get(part) is not None:
                yield Cell(title, GIB, shown=held[part])
    left, least = expect.get("available_after"), expect.get("available_least")
    available = (answer.get("memory") or {}).get("available")
    yield Cell(LEFT, GIB, left if ranks else None, least if ranks else None, shown=available)
