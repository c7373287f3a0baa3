"""NVIDIA's cards on the PCI bus, which has them whatever the driver can still say of them."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from opsctl.onhost.hostfacts import read

CLASSES = ("0x0300", "0x0302")  # of PCI devices: VGA and 3D controllers


def pci(sys: str = "/sys") -> List[Dict[str, str]]:
    """NVIDIA's devices on the bus: {"bus", "class", "driver"}, by address."""
    found = []
    folder = f"{sys}/bus/pci/devices"
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if read(f"{folder}/{name}/vendor").strip() != "0x10de":
            continue
        driver = os.path.realpath(f"{folder}/{name}/driver")
        found.append(
            {
                "bus": name,
                "class": read(f"{folder}/{name}/class").strip(),
                "driver": os.path.basename(driver) if os.path.exists(driver) else "",
            }
        )
    return found


def on_bus(devices: Iterable[Mapping[str, str]]) -> List[str]:
    """Addresses of the cards among NVIDIA's devices."""
    return [device["bus"] for device in devices if device["class"].startswith(CLASSES)]


def completed(cards: List[Dict[str, Any]], buses: Sequence[str]) -> List[Dict[str, Any]]:
    """Where a card is lost nvidia-smi may tell of no other, nor of its index: both are taken from
    the bus, whose order is that of the indices. What it did not tell of is "untold". `buses`: of
    NVIDIA's cards, in order; where they contradict what is told they are left aside."""
    order = {short(bus): index for index, bus in enumerate(sorted(buses, key=short))}
    if not order or all(card["state"] != "lost" for card in cards):
        return cards
    found = [{**card, "index": _index(card, order)} for card in cards]
    told = [card["index"] for card in found]
    contradicted = any(
        card["bus"] and order.get(short(card["bus"])) != card["index"] for card in found
    )
    if contradicted or len(set(told)) < len(told) or not set(told) <= set(order.values()):
        return cards
    more = [
        {**dict.fromkeys(("name", "uuid"), ""), "index": index, "memory_total": 0,
         "memory_used": 0, "state": "untold", "bus": bus}
        for bus, index in order.items() if index not in told
    ]  # fmt: skip
    return sorted([*found, *more], key=lambda card: int(card["index"]))


def _index(card: Mapping[str, Any], order: Mapping[str, int]) -> int:
    return int(card["index"] if card["index"] >= 0 else order.get(short(card["bus"]), -1))


def short(bus: str) -> str:
    """ "00000000:01:00.0" and "0000:01:00.0" are one place; GB200 has domains above 0."""
    return re.sub(r"^0{4}(?=[0-9a-f]{4}:)", "", bus.lower())
