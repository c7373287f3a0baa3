"""Figures that the engine's parser takes, and that then fail late or do harm.

The engine finds these out after the weights are loaded, if at all: mem-fraction-static 88 (meant
0.88) asks for 88 times the GPU; a host pool's tokens are the device's times hicache-ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opsctl.errors import Problem

# flag → least, most (neither is allowed itself), in words
BOUNDS: dict[str, tuple[float, float, str]] = {
    "mem-fraction-static": (0.0, 1.0, "above 0 and below 1, such as 0.88"),
    "hicache-ratio": (0.0, 1000.0, "above 0 and below 1000, such as 2.0"),
    "hicache-size": (-1.0, 1e6, "GB a rank, from 0 and below a million"),
}


def out_of_bounds(service: str, typed: Mapping[str, Any]) -> list[Problem]:
    """`typed`: flags by canonical name, as the catalogue has typed them."""
    found = []
    for name, (least, most, allowed) in BOUNDS.items():
        value = typed.get(name)
        if value is None or (math.isfinite(value) and least < value < most):
            continue
        message, key = "makes no sense, though the engine's parser takes it", f"flags.{name}"
        found.append(Problem(message, service=service, key=key, value=str(value), allowed=allowed))
    return found
