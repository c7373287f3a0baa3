"""What a forecast was asked beside: the largest value of a key, and variants side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opsctl.forecast.compare import Variant
from opsctl.forecast.document import kv_bytes
from opsctl.forecast.solve import Solved
from opsctl.onhost.expect import left
from opsctl.remote.sanitise import text as harmless
from opsctl.views.figures import NONE, count, gib, span

if TYPE_CHECKING:
    from rich.table import Table


def number(value: float | int) -> str:
    """As a person reads it: thousands apart, no exponent."""
    return f"{value:,.10g}"


def solution(found: Solved) -> Iterator[str]:
    """The largest value, what it leaves, and what stands in the way of more."""
    if found.value is None:
        yield f"no {found.key} fits"
    else:
        yield f"largest that fits: {found.key} {number(found.value)} {found.unit}".rstrip()
        if len(found.sets) > 1:
            yield f"  it counts with all of {options(found.sets)}"
        fit = found.result.fit if found.result else None
        if fit is not None and fit.available_after is not None:
            yield f"  {left(fit.available_after, ' of RAM')}; {gib(found.headroom)} demanded"
    if found.possible is not None:
        yield f"  up to {number(found.possible)} it may start, with less certainty"
    word = "more" if found.value is not None else "because"
    yield from (f"  {word}: {harmless(why)}" for why in found.limits)
    yield from (f"  {harmless(note)}" for note in found.notes)


def comparison(variants: Sequence[Variant]) -> Table:
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    drawn.add_column("", justify="right", no_wrap=True)
    for name in ("TOKENS", "PREFIX", "GPU GiB", "HOST GB", "RAM GiB", "START"):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("VERDICT", no_wrap=True)
    for n, one in enumerate(variants, 1):
        drawn.add_row(f"{n}", *_cells(one))
    return drawn


def _cells(one: Variant) -> list[str]:
    said = one.outlook
    if said is None:
        return [NONE] * 6 + ["not possible"]
    device, total = said.result.device, said.start_total
    size = kv_bytes(device)
    after = said.result.fit.available_after
    return [
        count(device.tokens.value if device.tokens else None),
        count(said.result.prefix),
        NONE if size is None else f"{size.value / 2**30:.2f}",
        NONE if said.result.host_total is None else f"{said.result.host_total / 1e9:.2f}",
        NONE if after is None else f"{after / 2**30:.2f}",
        NONE if total is None else span(total.value),
        said.verdict,
    ]


def remarks(variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    """Below the table, each beside its row's number: what it is, why it cannot be, and what no
    figure tells."""
    described = {one.id for one in variants[0].outlook.advisories} if variants[0].outlook else set()
    for n, one in enumerate(variants, 1):
        yield f"{n}", _variant(one)
        if one.why:
            yield " ", one.why
        yield from ((" ", note) for note in one.notes)
        if one.outlook is not None:
            yield from ((" ", why) for why in one.outlook.result.fit.reasons)
            for advisory in one.outlook.advisories:
                if advisory.id not in described and advisory.severity != "info":
                    yield " ", f"{advisory.severity} {advisory.id}"


def _variant(one: Variant) -> str:
    """Its name and what to type for it."""
    named = one.name != " ".join(one.sets)
    return ": ".join(part for part in (one.name if named else "", options(one.sets)) if part)


def options(sets: Sequence[str]) -> str:
    return " ".join(f"--set {part}" for part in sets)
