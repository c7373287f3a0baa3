"""A forecast as an engineer reads it at 3 a.m.: the verdict, then GPU, host, RAM, start, what is
known to go wrong, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opsctl.engine.advisories import Advisory
from opsctl.forecast.document import kv_bytes
from opsctl.forecast.fit import NOT
from opsctl.forecast.outlook import Outlook
from opsctl.forecast.told import Told
from opsctl.forecast.values import Device, Figure, HostPool
from opsctl.onhost.expect import left
from opsctl.remote.sanitise import text as harmless
from opsctl.views.figures import NONE, count, gb, gib, span
from opsctl.views.fold import Hanging
from opsctl.views.once import Line, Once
from opsctl.views.wishes import comparison, remarks, solution

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

STYLE = {"fits": "bold green", "tight": "bold yellow", "does not fit": "bold red"}
SEVERITY = {"critical": "bold red", "warn": "yellow", "info": "dim"}

_NOTE = "note: "

Row = tuple[str, str, str]  # what, the figure, where it comes from


def drawing(told: Told, once: Once | None = None) -> RenderableType:
    """`once`: what was told of other hosts already."""
    from rich.console import Group

    once = once or Once()
    who = f"{told.host} {told.service}".strip()
    parts: list[RenderableType] = []
    if told.outlook is None:
        what = told.verdict if told.unfit else "not forecast"
        parts.append(Hanging(f"{who}: {what}: {harmless(told.refused)}", "bold red"))
        parts += _known(who, told.advisories, told.notes, once)
    else:
        parts += _told(who, told.outlook, once)
    if told.solved is not None:
        parts += ["", *(Hanging(line) for line in solution(told.solved))]
    if told.unsolved:
        parts += ["", Hanging(f"no largest value: {harmless(told.unsolved)}", "bold yellow")]
    if told.compared:
        parts += ["", comparison(told.compared)]
        parts += [_hanging(label, line, "dim") for label, line in remarks(told.compared)]
    if told.steps:
        parts += ["", *(_step(line) for line in told.steps)]
    return Group(*parts)


def closing(told: Sequence[Told]) -> Iterator[RenderableType]:
    """The verdicts again, below all that a terminal has scrolled away. What does not fit, or is not
    forecast, is told by how the command ends."""
    for one in told:
        if one.outlook is not None and one.verdict != NOT:
            yield from _verdict(f"{one.host} {one.service}".strip(), one.outlook)


def _verdict(who: str, said: Outlook) -> Iterator[RenderableType]:
    style = STYLE.get(said.verdict, "bold")
    yield Hanging(f"{who}: {headline(said)}", style)
    yield from (_hanging(" ", why, style) for why in said.result.fit.reasons)


def _told(who: str, said: Outlook, once: Once) -> Iterator[RenderableType]:
    yield from _verdict(who, said)
    yield _hanging("model ", model(said), "")
    yield _figures(said)
    yield from _known(who, said.advisories, said.notes, once)


def _known(
    who: str, advisories: Sequence[Advisory], notes: Sequence[str], once: Once
) -> Iterator[RenderableType]:
    blocks = (
        ("advisories", list(_advisories(advisories))),
        ("notes", [(f"{_NOTE}{note}", "dim") for note in notes]),
    )
    for text, style in once.lines(who, blocks):
        if text.startswith(_NOTE):
            yield _hanging(_NOTE.strip(), text.removeprefix(_NOTE), style)
        else:
            yield Hanging(text, style)


def _hanging(label: str, text: str, style: str) -> RenderableType:
    """A paragraph that hangs beside its label."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(label, style), Text(harmless(text), style))
    return grid


def model(said: Outlook) -> str:
    shape = said.case.shape
    kinds = ", ".join(said.kinds)
    return f"{shape.architecture}, {shape.layers} layers, {kinds}: {said.model}"


def headline(said: Outlook) -> str:
    after = said.result.fit.available_after
    tail = f", {left(after, ' of RAM')}" if after is not None else ""
    return f"{said.verdict}{tail} (SGLang {said.case.version}, {_ranks(said.case.ranks)})"


def _ranks(ranks: Sequence[str]) -> str:
    return ranks[0] if len(ranks) == 1 else f"{len(ranks)} ranks {ranks[0]} … {ranks[-1]}"


# -- the figures ----------------------------------------------------------------------------------


def _figures(said: Outlook) -> Table:
    from rich.table import Table

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("bold", "", "", "dim"):
        grid.add_column(style=style, overflow="fold", no_wrap=style == "bold")
    for section, rows in sections(said):
        for n, (what, figure, source) in enumerate(rows):
            grid.add_row("" if n else section, what, figure, harmless(source))
    return grid


def sections(said: Outlook) -> Iterator[tuple[str, list[Row]]]:
    devices = said.result.devices
    for n, device in enumerate(devices):
        where = f" PP{device.stage}" if len(devices) > 1 else ""
        yield f"GPU{where}", list(_gpu(said, device))
        pools = said.result.pools[n]
        if said.tier:
            yield f"host{where}", list(_pools(pools))
    if said.tier:
        yield "", list(_together(said))
    yield "RAM", list(_ram(said))
    if said.start:
        yield "start", list(_start(said))
    if said.payoff is not None:
        yield "reuse", list(_payoff(said))


def _gpu(said: Outlook, device: Device) -> Iterator[Row]:
    tokens = device.tokens
    if tokens is None:
        yield ("KV cache", NONE, "not known before the first start")
    else:
        size = kv_bytes(device)
        figure = f"{count(tokens.value)} tokens = {gib(size.value) if size else NONE}"
        yield ("KV cache", figure, _from(tokens, count))
    page = f", pages of {device.page}" if device.page > 1 else ""
    yield ("a token", f"{count(device.cell)} B{page}", "")
    if device.charged != device.cell:
        yield ("", f"{count(device.charged)} B are charged for it", "")
    for pool in device.pools:
        if pool.name != "kv" or len(device.pools) > 1:
            rows = "slots" if pool.name in ("mamba", "conv") else "tokens"
            figure = f"{count(pool.rows.value)} {rows} = {gib(pool.bytes.value)}"
            yield (f"pool {pool.name}", figure, "")
    weights = said.weights
    if weights is not None:
        yield ("weights", gib(weights.value), _from(weights, gib))
    if device.fraction is not None:
        reserve = gib(device.reserve.value) if device.reserve else NONE
        yield ("kept free", reserve, f"1 − {device.fraction:g} of what is free before the weights")


def _from(figure: Figure, shown: object) -> str:
    """ "computed from …, 158,000 to 160,000" """
    told = f"{figure.basis}: {figure.source}" if figure.source else figure.basis
    if figure.least == figure.most or not callable(shown):
        return told
    least = NONE if figure.least is None else shown(figure.least)
    most = NONE if figure.most is None else shown(figure.most)
    return told if least == most else f"{least} to {most}, {told}"


def _pools(pools: Sequence[HostPool] | None) -> Iterator[Row]:
    if pools is None:
        yield ("pools", NONE, "see the notes")
    for pool in pools or ():
        if pool.refused:
            yield (f"pool {pool.name}", NONE, pool.refused)
        elif pool.bytes is None:
            yield (f"pool {pool.name}", NONE, "not known before the first start")
        else:
            rows = "slots" if pool.name == "mamba" else "tokens"
            figure = f"{count(pool.tokens)} {rows} = {gb(pool.bytes)}"
            yield (f"pool {pool.name}", figure, _by(pool))


def _by(pool: HostPool) -> str:
    if pool.size:
        return f"hicache-size {pool.size:g}"
    if pool.auto:
        return "as large as the engine finds RAM for"
    return f"hicache-ratio {pool.ratio:g}" if pool.ratio else f"as many as pool {pool.like}"


def _together(said: Outlook) -> Iterator[Row]:
    total, ranks = said.result.host_total, len(said.case.ranks)
    if total is None:
        return
    of = "1 rank" if ranks == 1 else f"{ranks} ranks"
    yield ("all ranks", f"{gb(total)} = {gib(total)}", f"{of}, pinned")
    tokens = said.result.device.tokens
    if said.result.prefix is not None and tokens is not None:
        figure = f"{count(tokens.value)} → {count(said.result.prefix)} tokens"
        whose = "that the cache can hold"
        if said.caches > 1:
            whose = f"that the cache of one DP rank can hold; each of {said.caches} has its own"
        yield ("prefixes", figure, whose)


def _ram(said: Outlook) -> Iterator[Row]:
    fit, memory = said.result.fit, said.case.memory
    if memory is None:
        yield ("left", NONE, "the host's RAM was not told")
        return
    band = "" if fit.least is None else f"at worst {left(fit.least)}; "
    after, demanded = fit.available_after, f"{gib(said.case.min_available)} demanded"
    if after is not None and after < 0:
        yield ("too little", f"{gib(-after)} of {gib(memory.total)}", f"{band}{demanded}")
    else:
        yield ("left", f"{gib(after)} of {gib(memory.total)}", f"{band}{demanded}")


def _start(said: Outlook) -> Iterator[Row]:
    total = said.start_total
    if total is not None:
        yield ("until ready", span(total.value), _from(total, span))
    else:
        yield ("until ready", NONE, "the size of the weights is not known")
    longest = sorted(said.start.items(), key=lambda one: -one[1].value)[:3]
    yield ("most of it", ", ".join(f"{name} {span(one.value)}" for name, one in longest), "")


def _payoff(said: Outlook) -> Iterator[Row]:
    assert said.payoff is not None
    yield from said.payoff.rows()


def _advisories(found: Sequence[Advisory]) -> Iterator[Line]:
    for one in found:
        doubt = "" if one.certain else " (if it applies here)"
        yield f"{one.severity} {one.id}: {one.text}{doubt}", SEVERITY[one.severity]
        if one.severity != "info":
            yield f"  → {one.advice}", "dim"


def _step(line: str) -> RenderableType:
    if line.startswith("# "):
        return Hanging(harmless(line[2:]), "bold")
    return Hanging(f"  {harmless(line)}")
