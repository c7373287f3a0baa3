"""What kind of card a case runs on, as far as the engine's own choices depend on it."""

from __future__ import annotations

from functools import cache

from opsctl.forecast.values import Hardware

# Part of a name as nvidia-smi or amd-smi shows it → compute capability. The first that fits.
_CAPABILITY: tuple[tuple[str, tuple[int, int]], ...] = (
    *((name, (10, 3)) for name in ("B300", "GB300")),
    *((name, (10, 0)) for name in ("B200", "B100", "GB200")),
    ("GB10", (12, 1)),
    *((name, (12, 0)) for name in ("RTX PRO", "RTX 50", "5090", "5080")),
    *((name, (9, 0)) for name in ("H100", "H200", "H800", "H20", "GH200", "H100L")),
    *((name, (8, 9)) for name in ("L40", "L20", "L4", "RTX 40", "4090", "6000 Ada", "5000 Ada")),
    *((name, (8, 0)) for name in ("A100", "A800", "A30")),
    *((name, (8, 6)) for name in ("A40", "A10", "A16", "RTX A", "RTX 30", "3090")),
    ("V100", (7, 0)),
    ("T4", (7, 5)),
)
_AMD_CAPABILITY = (
    *((name, (9, 5)) for name in ("MI350", "MI355")),
    *((name, (9, 4)) for name in ("MI300", "MI308", "MI325")),
    *((name, (9, 0)) for name in ("MI200", "MI210", "MI250")),
)


def capability(hardware: Hardware) -> tuple[int, int] | None:
    """(major, minor) as torch.cuda.get_device_capability tells; None: not known, or mixed cards."""
    if hardware.capability is not None:
        return hardware.capability
    found = {_by_name(card, hardware.vendor) for card in set(hardware.cards)}
    return found.pop() if len(found) == 1 else None


@cache
def _by_name(card: str, vendor: str) -> tuple[int, int] | None:
    table = _AMD_CAPABILITY if vendor == "amd" else _CAPABILITY
    return next((found for name, found in table if name in card), None)
