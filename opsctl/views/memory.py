"""`opsctl memory`: forecast, logged and shown side by side; ranks that are alike as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.forecast.columns import (
    FORECAST,
    LEFT,
    LOGGED,
    SHOWN,
    Cell,
    RankMemory,
    ServiceMemory,
)
from opsctl.onhost.expect import left
from opsctl.remote.sanitise import text as harmless
from opsctl.views.ahead import figure
from opsctl.views.figures import NONE, gib, short
from opsctl.views.fold import Hanging

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Row = tuple[str, str, str, str, str]  # figure, whose, and the three columns
# Ranks whose processes differ by less work alike. Judgements: a share, and bytes.
SPREAD, LITTLE = 0.02, 256 << 20
SHORT = 12  # characters of ranks' names beside a figure
_NUMBER = re.compile(r"(\d+)$")
Told = tuple[ServiceMemory, tuple[str, ...]]  # and why the columns differ
Said = Mapping[str, Sequence[Told] | OpsctlError]


def drawing(said: Said) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    for host, found in said.items():
        if isinstance(found, OpsctlError):
            parts.append(Hanging(f"{host}: {found.message}", "red"))
            continue
        for one, why in found:
            parts.append(Hanging(headline(host, one), "bold red" if one.differs else "bold"))
            if one.ranks or one.host:
                parts.append(table(one.ranks, one.host))
            parts += [Hanging(f"· {harmless(line)}") for line in why]
    return Group(*parts)


def headline(host: str, one: ServiceMemory) -> str:
    who = f"{host} {one.service}"
    if not one.ranks:
        return f"{who}: {one.state or 'absent'}"
    verdict = {"pass": "as forecast", "fail": "NOT as forecast"}.get(
        str((one.check or {}).get("status")), "not judged"
    )
    release = "not by opsctl" if one.release == "0" else f"release {short(one.release)}"
    total = len(one.ranks) + len(one.missing)
    return f"{who}: {release}, {len(one.ranks)} of {total} ranks, {verdict}"


# -- ranks ----------------------------------------------------------------------------------------


def rank_rows(found: Sequence[RankMemory]) -> list[Row]:
    """A row a figure: of ranks that have it alike one row for all, and of others a row each, since
    it is they who are looked for."""
    names = list(dict.fromkeys(cell.name for rank in found for cell in rank.cells))
    rows: list[Row] = []
    gpus = [str(rank.gpu) for rank in found if rank.gpu is not None]
    if len(gpus) == len(found) > 0:
        rows.append(("GPU", "", NONE, NONE, of_ranks(gpus)))
    for name in names:
        rows += _figure_rows(name, [(rank, rank.get(name)) for rank in found])
    return rows


def _figure_rows(name: str, found: Sequence[tuple[RankMemory, Cell | None]]) -> Iterator[Row]:
    groups: dict[tuple[str, str], list[tuple[RankMemory, Cell | None]]] = {}
    for rank, cell in found:
        groups.setdefault((_forecast(cell), _value(cell, LOGGED)), []).append((rank, cell))
    alike = sorted(
        (part for group in groups.values() for part in _of_one_size(group)),
        key=lambda part: -len(part),  # the rule first, then what departs from it
    )
    for n, part in enumerate(alike):
        ranks = [rank.rank for rank, _ in part]
        whose = "" if len(alike) == 1 else of_ranks(ranks)
        if not n and len(whose) > SHORT:
            whose = f"the other {len(ranks)}"
        yield ("" if n else name, whose, *_cells([cell for _, cell in part]))


def _of_one_size(
    group: Sequence[tuple[RankMemory, Cell | None]],
) -> Iterator[list[tuple[RankMemory, Cell | None]]]:
    """What the host shows of ranks that work alike differs by a little: that is told as a span. A
    rank that is further off is told by itself."""
    parts: dict[str, list[tuple[RankMemory, Cell | None]]] = {}
    sizes = [cell.shown for _, cell in group if cell is not None and cell.shown is not None]
    usual = sorted(sizes)[len(sizes) // 2] if sizes else 0
    for rank, cell in group:
        shown = None if cell is None else cell.shown
        near = shown is not None and abs(shown - usual) <= max(SPREAD * abs(usual), LITTLE)
        parts.setdefault("usual" if near else _value(cell, SHOWN), []).append((rank, cell))
    yield from parts.values()


def _cells(cells: Sequence[Cell | None]) -> tuple[str, str, str]:
    one = cells[0]
    shown = [cell.shown for cell in cells if cell is not None and cell.shown is not None]
    if one is None or not shown:
        told = NONE
    else:
        least, most = figure(min(shown), one.unit), figure(max(shown), one.unit)
        told = least if least == most else f"{least.rpartition(' ')[0] or least} to {most}"
    return _forecast(one), _value(one, LOGGED), told


def of_ranks(names: Sequence[str]) -> str:
    """ "TP3", "TP0, TP5", "TP0 … TP7" where none between is missing."""
    numbers = [int(found[1]) for name in names if (found := _NUMBER.search(name))]
    first = numbers[0] if numbers else 0
    if len(names) > 2 and numbers == list(range(first, first + len(names))):
        return f"{names[0]} … {names[-1]}"
    return ", ".join(names)


def _forecast(cell: Cell | None) -> str:
    if cell is None or cell.forecast is None:
        return NONE
    return figure(cell.forecast, cell.unit)


def _value(cell: Cell | None, source: str) -> str:
    if cell is None:
        return NONE
    return figure(cell.shown if source == SHOWN else cell.logged, cell.unit)


# -- the host -------------------------------------------------------------------------------------


def table(found: Sequence[RankMemory], cells: Sequence[Cell]) -> Table:
    """Ranks and host below one set of columns."""
    from rich.table import Table
    from rich.text import Text

    rows = rank_rows(found)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    apart = any(row[1] for row in rows)
    names = of_ranks([rank.rank for rank in found])
    title = f"each of {names}" if len(found) > 1 else names or "host"
    drawn.add_column(title, overflow="fold")
    if apart:
        drawn.add_column("")
    for name in (FORECAST, LOGGED, SHOWN):
        drawn.add_column(name, justify="right", no_wrap=True)
    for name, whose, *figures in rows:
        drawn.add_row(name, *([whose] if apart else []), *figures)
    if found and cells:
        drawn.add_row(Text("host", "bold"))
    for cell in cells:
        drawn.add_row(cell.name, *([""] if apart else []), *_host_cells(cell))
        if cell.least not in (None, cell.forecast):
            worst = _left(cell.least) if cell.name == LEFT else figure(cell.least, cell.unit)
            drawn.add_row("  at worst", *([""] if apart else []), worst, "", "")
    return drawn


def _host_cells(cell: Cell) -> tuple[str, str, str]:
    if cell.name != LEFT:
        return _forecast(cell), _value(cell, LOGGED), _value(cell, SHOWN)
    return _left(cell.forecast), _value(cell, LOGGED), _left(cell.shown)


def _left(size: int | None) -> str:
    if size is None:
        return NONE
    return gib(size) if size >= 0 else left(size)


# -- for programs ---------------------------------------------------------------------------------


def document(said: Said) -> dict[str, Any]:
    """Bytes, or tokens where the unit says so."""
    hosts = [_host(name, found) for name, found in said.items()]
    good = not any(isinstance(found, OpsctlError) for found in said.values())
    differs = any(
        one.differs
        for found in said.values()
        if not isinstance(found, OpsctlError)
        for one, _ in found
    )
    return {"schema_version": 1, "ok": good and not differs, "hosts": hosts}


def _host(name: str, found: Sequence[Told] | OpsctlError) -> dict[str, Any]:
    if isinstance(found, OpsctlError):
        reachable = not isinstance(found, Unreachable)
        return {"host": name, "reachable": reachable, "error": found.message, "services": []}
    return {
        "host": name,
        "reachable": True,
        "services": [_service(one, why) for one, why in found],
    }


def _service(one: ServiceMemory, why: Sequence[str]) -> dict[str, Any]:
    return {
        "service": one.service,
        "state": one.state,
        "release": one.release,
        "ranks": [
            {
                "rank": rank.rank,
                "gpu": rank.gpu,
                "pid": rank.pid,
                "figures": [cell.as_json() for cell in rank.cells],
            }
            for rank in one.ranks
        ],
        "missing": list(one.missing),
        "host": [cell.as_json() for cell in one.host],
        "check": None
        if one.check is None
        else {key: one.check[key] for key in ("id", "status", "detail")},
        "explained": list(why),
    }
