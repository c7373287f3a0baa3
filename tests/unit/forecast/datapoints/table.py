"""Public figures of real starts, and what we make of them: datapoints.jsonl → docs/datapoints.md.

`python -m tests.unit.forecast.datapoints.table` writes the table; a test fails when it is stale.

A row's `log` is what the source shows; `given` is what the forecast is told of that start: the free
memory (GiB, two decimals), or the number of tokens or slots, whose bytes are then the figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opsctl.forecast.device import device
from opsctl.forecast.fit import judge
from opsctl.forecast.host import host_pools
from opsctl.forecast.shape import draft_geometry, geometry
from opsctl.forecast.values import Case, Device, Hardware, HostMemory, Measured, NoForecast

HERE = Path(__file__).parent
DOC = Path(__file__).resolve().parents[4] / "docs" / "datapoints.md"
GiB = 1 << 30
GPU_SHARE, HOST_GB = 0.002, 0.01  # what a figure may differ by
Row = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """One figure of a row. `ours` None: not told, and `why` says so."""

    what: str
    log: float
    ours: float | None
    allowed: float
    why: str = ""

    @property
    def difference(self) -> float:
        assert self.ours is not None
        return self.ours - self.log

    @property
    def good(self) -> bool:
        return self.ours is not None and abs(self.difference) <= self.allowed


@cache
def rows() -> tuple[Row, ...]:
    text = (HERE / "datapoints.jsonl").read_text()
    return tuple(json.loads(line) for line in text.splitlines())


@cache
def config(name: str) -> str:
    return (HERE / "configs" / f"{name}.json").read_text()


def case(row: Row, **given: Any) -> Case:
    flags, version = dict(row["flags"]), row["version"]
    shape = geometry(config(row["config"]), None, version)
    draft, own = None, row.get("draft")
    if own:
        text = None if own == row["config"] else config(own)
        draft = draft_geometry(text, None, shape, str(flags["speculative-algorithm"]))
    known = {**row.get("given", {}), **given}
    cards = tuple(row["cards"])
    ram = int(known.get("ram_gib", 8192)) * GiB
    return Case(
        version=version,
        flags=flags,
        env=row.get("env", {}),
        ranks=tuple(f"TP{n}" for n in range(int(flags["tp-size"]))),
        shape=shape,
        draft=draft,
        hardware=Hardware(
            len(cards),
            cards,
            None,
            tuple(row["capability"]) if "capability" in row else None,
            row.get("vendor", "nvidia"),
        ),
        memory=HostMemory(ram, ram),
        measured=Measured(
            tokens=known.get("tokens"),
            free_before=bytes_of(known.get("free_before_gib")),
            free_after=bytes_of(known.get("free_after_gib")),
            source="the source's log",
        ),
        weights=None,
        draft_weights=None,
        min_available=0,
    )


def bytes_of(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GiB)


def compared(row: Row) -> Iterator[Compared]:
    """Every figure of the row beside ours."""
    if "gap" in row:
        yield Compared("host kv, GB", row["log"]["host"][0]["gb"], None, 0, row["gap"])
        return
    asked = case(row)
    try:
        found = device(asked)[0]
    except NoForecast as reason:
        yield Compared("all", 0, None, 0, str(reason))
        return
    log = row["log"]
    yield from _device(row, found, log)
    if "host" in log or "host_total_gb" in log:
        yield from _host(asked, found, log)


def _device(row: Row, found: Device, log: Row) -> Iterator[Compared]:
    given = row.get("given", {})
    if "rest_gib" in log:
        assert found.rest is not None
        yield Compared("rest, GiB", log["rest_gib"], found.rest.value / GiB, 0.011)
    if "slots" in log and "free_after_gib" in given:
        ours = next(pool.rows.value for pool in found.pools if pool.name == "mamba")
        yield Compared("slots of state", log["slots"], ours, max(1, log["slots"] * GPU_SHARE))
    if "tokens" in log and "free_after_gib" in given:
        assert found.tokens is not None
        yield Compared("tokens", log["tokens"], found.tokens.value, log["tokens"] * GPU_SHARE)
    if "kv_gib" in log:
        yield _gib("KV, GiB", log["kv_gib"], _size(found, ("kv", "indexer"), log["tokens"]))
    if "swa_gib" in log:
        yield _gib("window KV, GiB", log["swa_gib"], _size(found, ("swa",), log["swa_tokens"]))
    if "slots" in log:
        state = log.get("ssm_gib", 0) + log.get("conv_gib", 0)
        size = _size(found, ("mamba",), log["slots"])
        yield _gib("recurrent state, GiB", round(state, 2), size, lines=2)


def _size(found: Device, names: tuple[str, ...], rows_of: int) -> int:
    """Bytes of these pools with as many rows as the source logs; a spare row or page beside."""
    pools = [pool for pool in found.pools if pool.name in names]
    assert pools, f"no pool {names}"
    spare = 1 if names == ("mamba",) else found.page
    return sum((rows_of + spare) * pool.bytes_per_row for pool in pools)


def _gib(what: str, log: float, size: int, lines: int = 1) -> Compared:
    # A log line has two decimals.
    return Compared(what, log, size / GiB, max(log * GPU_SHARE, 0.00501 * lines))


def _host(asked: Case, found: Device, log: Row) -> Iterator[Compared]:
    try:
        pools = {pool.name: pool for pool in host_pools(asked, found)}
    except NoForecast as reason:
        yield Compared("host pools", 0, None, 0, str(reason))
        return
    if "ram_left_gib" in log:
        left = judge(asked, {rank: list(pools.values()) for rank in asked.ranks}).available_after
        # The source has whole GiB.
        yield Compared("RAM left, GiB", log["ram_left_gib"], (left or 0) / GiB, 1.0)
    if "host_total_gb" in log:
        total = sum(pool.bytes or 0 for pool in pools.values()) / 1e9
        yield Compared("host, GB a rank", log["host_total_gb"], total, HOST_GB)
    for told in log.get("host", ()):
        pool = pools.get(told["name"])
        if pool is None:
            yield Compared(f"host {told['name']}", 0, None, 0, f"no such pool among {list(pools)}")
            continue
        if "tokens" in told:
            yield Compared(f"host {pool.name}, tokens", told["tokens"], pool.tokens, 0)
        if "gb" in told:
            size = None if pool.bytes is None else pool.bytes / 1e9
            yield Compared(f"host {pool.name}, GB", told["gb"], size, HOST_GB)
        if "bytes_per_token" in told:
            wanted = told["bytes_per_token"]
            yield Compared(f"host {pool.name}, B a token", wanted, pool.bytes_per_token, 0)


# -- the table ------------------------------------------------------------------------------------

HEAD = """\
# Public figures, and ours

What starts of the engine logged, in public and at the reference deployment, beside what opsctl's
arithmetic gives from the model's config.json fields, the flags and the version. Written by
`python -m tests.unit.forecast.datapoints.table`; a test fails when it is stale.

A figure of GPU memory may differ by 0.2 %, one of host memory by 0.01 GB; log lines are rounded to
two decimals. KV sizes are those of the logged number of tokens; where free memory was logged, the
tokens are ours too. "By 0.5.2's rule" marks starts of releases before 0.5.2, whose rule for these
models was the same.

| start | version | flags | figure | logged | ours | difference |
|---|---|---|---|---:|---:|---:|
"""
_SHOWN = {
    "tp-size": "tp",
    "dp-size": "dp",
    "page-size": "page",
    "kv-cache-dtype": "kv",
    "mem-fraction-static": "fraction",
    "hicache-ratio": "ratio",
    "hicache-size": "size",
    "max-total-tokens": "max tokens",
    "speculative-algorithm": "",
}


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f}" if isinstance(value, float) and value != int(value) else f"{value:,.0f}"


def document() -> str:
    lines, notes = [], []
    for row in rows():
        shown = ", ".join(
            f"{short} {row['flags'][name]}".strip()
            for name, short in _SHOWN.items()
            if name in row["flags"]
        )
        for n, found in enumerate(compared(row)):
            start = f"{row['id']}" if n == 0 else ""
            difference = found.why or "–"
            if found.ours is not None:
                share = found.difference / found.log if found.log else 0
                difference = f"{found.difference:+,.3f} ({share:+.3%})" if found.difference else "0"
            version = row["version"] if n == 0 else ""
            lines.append(
                f"| {start} | {version} | {shown if n == 0 else ''} | {found.what} "
                f"| {number(found.log)} | {number(found.ours)} | {difference} |"
            )
        note = f"; {row['note']}" if "note" in row else ""
        notes.append(f"* **{row['id']}**: {row['source']}; version: {row['version_basis']}{note}.")
    return HEAD + "\n".join(lines) + "\n\n## Sources\n\n" + "\n".join(notes) + "\n"


if __name__ == "__main__":
    DOC.write_text(document())
