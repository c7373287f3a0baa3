"""What kind of card a case runs on, as far as the engine's own choices depend on it."""

from __future__ import annotations

import re
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
# Part of a name → MiB of a card as nvidia-smi or amd-smi shows them, for cards that are sold with
# one size of memory; others (A100, B300, GH200, V100) must name it. The first that fits. From
# public outputs of both tools; ECC and drivers move them by up to 1 % (an A100 of 80 GB has 81,251
# or 81,920).
_USUAL: tuple[tuple[str, int], ...] = (
    ("GB200", 189471), ("B200", 183359),
    ("H100 NVL", 95830), ("H200 NVL", 143771), ("H200", 143771),
    ("H20-3e", 143771), ("H20", 97871), ("H100", 81559), ("H800", 81559),
    ("A100-SXM4-40GB", 40960), ("A100-PCIE-40GB", 40960), ("A100 40GB", 40960),
    ("A100-SXM4-80GB", 81920), ("A100 80GB", 81920), ("A100-80GB", 81920), ("A800 80GB", 81920),
    ("RTX PRO 6000", 97887), ("RTX 6000 PRO", 97887), ("RTX 6000 Ada", 49140),
    ("L40S", 46068), ("L40", 46068), ("L20", 46068), ("L4", 23034), ("A40", 46068),
    ("RTX A6000", 49140), ("A30", 24576), ("A10G", 23028), ("A10", 23028), ("T4", 15360),
    ("RTX 5090", 32607), ("RTX 4090", 24564), ("RTX 3090", 24576),
)  # fmt: skip
_USUAL_AMD = (("MI300X", 196592), ("MI308X", 196592), ("MI325X", 262128), ("MI350X", 294896),
              ("MI355X", 294896))  # fmt: skip
USUAL_DOUBT = 0.015  # of it, to either side
_OTHER_SIZES = ("laptop", "48gb", "64gb", "94gb", "141gb")
_SPELLINGS = "H100, H200, B200, B300, A100, L40S, RTX PRO 6000, RTX 4090, MI300X, MI355X"


def capability(hardware: Hardware) -> tuple[int, int] | None:
    """(major, minor) as torch.cuda.get_device_capability tells; None: not known, or mixed cards."""
    if hardware.capability is not None:
        return hardware.capability
    return _of_all(hardware.cards, hardware.vendor)


@cache
def _of_all(cards: tuple[str, ...], vendor: str) -> tuple[int, int] | None:
    found = {_by_name(card, vendor) for card in set(cards)}
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
def usual_memory(card: str, vendor: str) -> int | None:
    """Bytes of a card of this name; None where cards of the name differ."""
    plain = _plain(card)
    if any(size in plain for size in _OTHER_SIZES) and "h200" not in plain:
        return None
    table = _USUAL_AMD if vendor == "amd" else _USUAL
    found = next((mib for name, mib in table if _bears(card, name)), None)
    return None if found is None else found << 20


def _bears(card: str, name: str) -> bool:
    """Whether a card has this name, whatever stands between its parts; an A100 is no A10."""
    parts = r"[\W_]*".join(re.escape(char) for char in name if char.isalnum())
    return re.search(rf"(?i)(?<![a-z]){parts}(?!\d)", card.replace("NVIDIA", "")) is not None


@cache
def _by_name(card: str, vendor: str) -> tuple[int, int] | None:
    table = _AMD_CAPABILITY if vendor == "amd" else _CAPABILITY
    plain = _plain(card)
    return next((found for name, found in table if _plain(name) in plain), None)


def _plain(name: str) -> str:
    """Without its maker, whose last letter makes an A10 of an NVIDIA 1080."""
    return "".join(filter(str.isalnum, name.lower().replace("nvidia", "")))
