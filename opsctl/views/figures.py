"""Figures as people read them, each with its unit. GiB = 2^30 bytes, GB = 10^9 bytes; times UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from opsctl.onhost import expect
from opsctl.onhost.expect import span

__all__ = ["NONE", "brief", "count", "gb", "gib", "short", "span", "utc"]

NONE = "–"


def gib(value: int | None) -> str:
    """Memory of a host or a GPU, which every tool counts in 2^30. Rounded as the gates and the
    engine's log round it, so that one figure looks the same wherever it is told."""
    return NONE if value is None else expect.gib(value)


def gb(value: int | None) -> str:
    """Host pools, which the engine logs in 10^9."""
    if value is None:
        return NONE
    return f"{value / 1e9:.2f} GB" if value >= 1e7 or not value else f"{value / 1e6:.2f} MB"


def count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def utc(epoch: float | None) -> str:
    """Seconds since the epoch as "2026-03-01 23:45:08Z"."""
    if not epoch:
        return NONE
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def brief(text: str, longest: int = 160) -> str:
    """A message as one cell of a table; the whole of it is told below the table."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def short(digest: str | None) -> str:
    """The first twelve digits of a release's digest; release "0" is what stood there before."""
    return digest[:12] if digest else NONE
