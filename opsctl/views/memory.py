"""`opsctl memory`: forecast, logged and shown side by side, a row for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.forecast.columns import FORECAST, LOGGED, SHOWN, Cell, RankMemory, ServiceMemory
from opsctl.remote.sanitise import text as harmless
from opsctl.views.ahead import figure
from opsctl.views.figures import NONE, short

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

Told = tuple[ServiceMemory, tuple[str, ...]]  # and why the columns differ
Said = Mapping[str, Sequence[Told] | OpsctlError]


def drawing(said: Said) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for host, found in said.items():
        if isinstance(found, OpsctlError):
            parts.append(Text(f"{host}: {found.message}", "red"))
            continue
        for one, why in found:
            parts.append(Text(headline(host, one), "bold red" if one.differs else "bold"))
            if one.ranks:
                parts.append(ranks(one.ranks))
            if one.ranks or one.host:
                parts.append(host_table(one.host))
            parts += [Text(f"· {harmless(line)}") for line in why]
    return Group(*parts)


def headline(host: str, one: ServiceMemory) -> str:
    who = f"{host} {one.service}"
    if not one.ranks:
        return f"{who}: {one.state or 'absent'}"
    verdict = {"pass": "as forecast", "fail": "NOT as forecast"}.get(
        str((one.check or {}).get("status")), "not judged"
    )
    total = len(one.ranks) + len(one.missing)
    return f"{who}: release {short(one.release)}, {len(one.ranks)} of {total} ranks, {verdict}"


def ranks(found: Sequence[RankMemory]) -> Table:
    """A row of what was forecast, then each rank; of ranks that are forecast alike one row. What a
    rank logged stands first in a cell, what the host shows in a column of its own."""
    from rich.table import Table
    from rich.text import Text

    columns = list(_columns(found))
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("")
    drawn.add_column("GPU", justify="right")
    for name, source in columns:
        drawn.add_column(f"{name}\n{source}", justify="right")
    before: list[str] = []
    for rank in found:
        planned = [_forecast(rank.get(name)) for name, _ in columns]
        if planned != before:
            drawn.add_row(Text(FORECAST, "cyan"), "", *(Text(cell, "cyan") for cell in planned))
            before = planned
        gpu = NONE if rank.gpu is None else str(rank.gpu)
        cells = [_value(rank.get(name), source) for name, source in columns]
        drawn.add_row(rank.rank, gpu, *cells)
    return drawn


def _columns(found: Sequence[RankMemory]) -> Iterator[tuple[str, str]]:
    """(name, source) of every column that any rank has."""
    names = list(dict.fromkeys(cell.name for rank in found for cell in rank.cells))
    for name in names:
        cells = [cell for rank in found if (cell := rank.get(name))]
        shown = any(cell.shown is not None for cell in cells)
        yield name, SHOWN if shown else LOGGED


def _forecast(cell: Cell | None) -> str:
    if cell is None or cell.forecast is None:
        return NONE
    return figure(cell.forecast, cell.unit)


def _value(cell: Cell | None, source: str) -> str:
    if cell is None:
        return NONE
    return figure(cell.shown if source == SHOWN else cell.logged, cell.unit)


def host_table(cells: Sequence[Cell]) -> Table:
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("host")
    for name in (FORECAST, LOGGED, SHOWN):
        drawn.add_column(name, justify="right")
    for cell in cells:
        least = (
            "" if cell.least in (None, cell.forecast) else f" (≥ {figure(cell.least, cell.unit)})"
        )
        drawn.add_row(
            cell.name,
            f"{_forecast(cell)}{least}",
            _value(cell, LOGGED),
            _value(cell, SHOWN),
        )
    return drawn


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
