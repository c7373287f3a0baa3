"""What is taken to be so where nobody told it: a newcomer's first question has no figures yet.

Each is an estimate with a band, and a note says which option or key tells it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opsctl.forecast.case import DIMENSIONS
from opsctl.forecast.device.hardware import USUAL_DOUBT, usual_memory
from opsctl.forecast.sharding import split
from opsctl.forecast.values import ESTIMATED, Case, Figure
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


# Of the files' bytes over the ranks: least, likely, most. What is not split (MLA's projections
# down, small tensors, image towers) counts on every rank: Kimi-K2.5 over eight takes 1.04 of its
# share. MTP layers that are not loaded take a little away. model.size is the least that the files
# may have.
_ONE, _SPLIT = (0.90, 1.02, 1.15), (0.88, 1.04, 1.35)
_BESIDE = GiB  # kernels and the allocator's waste, at most


def weighed(case: Case, size: int | None) -> tuple[Case, Notes]:
    """`size`: model.size, bytes: what the files have at least. Weights follow from it where they
    do not follow from tensors or dimensions; those of dimensions cannot be far below it."""
    found, seen = case.weights, case.measured
    if seen.weights is not None or (seen.free_before and seen.free_after):
        return case, ()
    if found is None and size is not None:
        cut = split(case.flags)
        if case.flags.get("load-format") in ("gguf", "bitsandbytes") or cut.attention < cut.ranks:
            return case, ()
        over = cut.ranks * cut.stages
        least, likely, most = (int(size * part / over) for part in (_ONE if over == 1 else _SPLIT))
        figure = Figure(likely, least, most + _BESIDE, ESTIMATED, "model.size over the ranks")
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
            most = max(found.most, int(size * _SPLIT[2] / len(case.ranks)))
            return replace(case, weights=replace(found, most=most)), (note,)
    return case, (note,)
