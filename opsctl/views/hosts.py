"""`opsctl hosts`: one line a host: what it is, and what stands on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from opsctl.errors import OpsctlError, Unreachable
from opsctl.views.document import Said
from opsctl.views.figures import NONE, brief, gib
from opsctl.views.fold import Listing
from opsctl.views.undescribed import verdict

HEAD = 2
COLUMNS = ("HOST", "ADDRESS", "OS", "GPUS", "DRIVER", "MEMORY", "AVAILABLE", "SWAP", "SERVICES")

_UNDESCRIBED = {"fail": ", not described", "inconclusive": ", not by opsctl"}


def rows(said: Mapping[str, Said], addresses: Mapping[str, str]) -> list[tuple[str, ...]]:
    return [_row(name, addresses.get(name, NONE), answer) for name, answer in said.items()]


def table(said: Mapping[str, Said], addresses: Mapping[str, str]) -> Listing:
    return Listing(COLUMNS, rows(said, addresses), head=HEAD, style=_style, nothing=NONE)


def _style(cell: str) -> str:
    return "red" if cell.startswith(("unreachable:", "error:")) else ""


def _row(name: str, address: str, answer: Said) -> tuple[str, ...]:
    if isinstance(answer, OpsctlError):
        word = "unreachable" if isinstance(answer, Unreachable) else "error"
        return (name, address, f"{word}: {brief(answer.message)}", *[NONE] * 6)
    memory = answer.get("memory") or {}
    swap = memory.get("swap_used")
    services = [
        f"{s['service']} ({s.get('state')}{_UNDESCRIBED.get(verdict(s), '')})"
        for s in answer.get("services") or ()
    ]
    return (
        name,
        address,
        str(answer.get("os") or NONE),
        gpus(answer.get("gpus") or ()),
        str(answer.get("driver") or NONE),
        gib(memory.get("total")),
        gib(memory.get("available")),
        "none used" if swap == 0 else gib(swap),
        ", ".join(services) or NONE,
    )


def gpus(cards: Iterable[Mapping[str, Any]]) -> str:
    """ "8 × NVIDIA L40S"; a GPU that is not well says so. One of which nothing is left but its
    place says that."""
    found = list(cards)
    lost = [gpu for gpu in found if gpu.get("state") == "lost" and not gpu.get("name")]
    kinds = Counter(
        str(gpu.get("name") or "GPU")
        + ("" if gpu.get("state", "ok") == "ok" else f" ({gpu['state']})")
        for gpu in found
        if gpu not in lost
    )
    told = [*(f"{n} × {name}" for name, n in kinds.items()), *map(_lost, lost)]
    return ", ".join(told) or NONE


def _lost(gpu: Mapping[str, Any]) -> str:
    """ "GPU 4 at 0000:41:00.0 (lost)" """
    index = gpu.get("index", -1)
    where = f" at {gpu['bus']}" if gpu.get("bus") else ""
    return f"GPU{f' {index}' if index >= 0 else ''}{where} (lost)"
