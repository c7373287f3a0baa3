"""What kind of card a case runs on, as far as the engine's own choices depend on it."""

from __future__ import annotations

from functools import cache

from opsctl.forecast.values import Hardware

# GeForce cards; RTX 4000 and RTX 5000 are workstation cards of several generations.
_SERIES = {n: tuple(f"RTX {n}{last}" for last in (50, 60, 70, 80, 90)) for n in (30, 40, 50)}
# Part of a name as nvidia-smi or amd-smi shows it → compute capability. The first that fits;
# neither case nor blanks matter.
_CAPABILITY: tuple[tuple[str, tuple[int, int]], ...] = (
    *((name, (10, 3)) for name in ("B300", "GB300")),
    *((name, (10, 0)) for name in ("B200", "B100", "GB200")),
    ("GB10", (12, 1)),
    *((name, (12, 0)) for name in ("RTX PRO", "6000 PRO", *_SERIES[50])),
    *((name, (9, 0)) for name in ("H100", "H200", "H800", "H20", "GH200", "H100L")),
    *((name, (8, 9)) for name in ("Ada", "L40", "L20", "L4", *_SERIES[40])),
    *((name, (8, 6)) for name in ("RTX A", *_SERIES[30])),
    *((name, (8, 0)) for name in ("A100", "A800", "A30")),
    *((name, (8, 6)) for name in ("A40", "A10", "A16")),
    ("V100", (7, 0)),
    ("T4", (7, 5)),
)
_AMD_CAPABILITY = (
    *((name, (9, 5)) for name in ("MI350", "MI355")),
    *((name, (9, 4)) for name in ("MI300", "MI308", "MI325")),
    *((name, (9, 0)) for name in ("MI200", "MI210", "MI250")),
)
_SPELLINGS = "H100, H200, B200, B300, A100, L40S, RTX PRO 6000, RTX 4090, MI300X, MI355X"


def capability(hardware: Hardware) -> tuple[int, int] | None:
    """(major, minor) as torch.cuda.get_device_capability tells; None: not known, or mixed cards."""
    if hardware.capability is not None:
        return hardware.capability
    found = {_by_name(card, hardware.vendor) for card in set(hardware.cards)}
    return found.pop() if len(found) == 1 else None


def unknown_card(hardware: Hardware) -> str:
    """What to change where a card's name tells nothing; for the end of a sentence."""
    if hardware.cards and capability(hardware) is None and len(set(hardware.cards)) == 1:
        return (
            f"the card {hardware.cards[0]!r} is not known here (--gpu-name takes {_SPELLINGS} and "
            "others, as nvidia-smi or amd-smi shows them)"
        )
    return ""


@cache
def _by_name(card: str, vendor: str) -> tuple[int, int] | None:
    table = _AMD_CAPABILITY if vendor == "amd" else _CAPABILITY
    plain = _plain(card)
    return next((found for name, found in table if _plain(name) in plain), None)


def _plain(name: str) -> str:
    """Without its maker, whose last letter makes an A10 of an NVIDIA 1080."""
    return "".join(filter(str.isalnum, name.lower().replace("nvidia", "")))
