"""What is taken to be so where nobody told it: a newcomer's first question has no figures yet.

Each is an estimate with a band, and a note says which option or key tells it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opsctl.forecast.case import DIMENSIONS
from opsctl.forecast.credible import SPLIT, by_size
from opsctl.forecast.device.hardware import USUAL_DOUBT, usual_memory
from opsctl.forecast.values import Case
from opsctl.onhost.expect import GiB, gib

# Keys of an answer that no host gave: it was typed; every card is like this one.
TYPED, CARD = "typed", "card_of_all"

Notes = tuple[str, ...]


def presumed(
    manifest: Mapping[str, Any], facts: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Notes]:
    """With a card for every rank where the kind of card was told, and not how many there are."""
    card = facts.get(CARD)
    if card is None or facts.get("gpus"):
        return facts, ()
    asked = manifest.get("gpus")
    places = asked if asked is not None else range(len(manifest["ranks"]))
    gpus = [{"index": n, **card, "state": "ok"} for n in places]
    return {**facts, "gpus": gpus}, ("as many GPUs as ranks were taken to be there (--gpus)",)


def usual(case: Case) -> tuple[Case, Notes]:
    """With the memory that cards of this name have, where nobody told it."""
    hardware = case.hardware
    if hardware.total is not None or len(set(hardware.cards)) != 1 or not hardware.cards[0]:
        return case, ()
    name = hardware.cards[0]
    found = usual_memory(name, hardware.vendor)
    if found is None:
        return case, ()
    known = replace(hardware, total=found, doubt=int(found * USUAL_DOUBT))
    note = (
        f"the memory of {name} was taken to be the usual {found / GiB:.1f} GiB: nvidia-smi or "
        "amd-smi shows it (--gpu-total)"
    )
    return replace(case, hardware=known), (note,) if case.measured.free_before is None else ()


def weighed(case: Case, size: int | None) -> tuple[Case, Notes]:
    """`size`: model.size, bytes: what the files have at least. Weights follow from it where they
    do not follow from tensors or dimensions; those of dimensions cannot be far below it."""
    found, seen = case.weights, case.measured
    if seen.weights is not None or (seen.free_before and seen.free_after):
        return case, ()
    if found is None and size is not None:
        figure = by_size(case.flags, size)
        if figure is None:
            return case, ()
        return replace(case, weights=figure), (
            "the weights of a rank are estimated from model.size: --gpu-free-after of a start "
            "tells them",
        )
    if found is None or found.source != DIMENSIONS:
        return case, ()
    note = (
        "the weights of a rank are estimated from config.json's dimensions "
        f"({gib(found.least or 0)} to {gib(found.most or 0)}): --gpu-free-after of a start tells "
        "them"
    )
    if size is not None and found.most is not None:
        whole = found.most * len(case.ranks)
        if size > 1.02 * whole:
            note += (
                f"; they come to less than model.size ({gib(size)}), which was taken for their "
                "upper edge"
            )
            most = max(found.most, int(size * SPLIT[2] / len(case.ranks)))
            return replace(case, weights=replace(found, most=most)), (note,)
    return case, (note,)
