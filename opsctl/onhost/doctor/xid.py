"""What an Xid in the kernel's log means: whether they tell of the card or of a program.

Source: NVIDIA, "Xid Errors" (the catalogue and its guide to common Xids). Of a number that is not
listed only the number is told.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Tuple

# Whose matter it is, each a fault of its own: the card's; of a card that has left the bus, which no
# reset brings back; of memory that a reset takes out of use; the program's.
CARD, GONE, RESET, PROGRAM = "xid-card", "xid-gone", "xid-reset", "xid-program"
# number → (whose, meaning)
XIDS: Dict[int, Tuple[str, str]] = {
    8: (PROGRAM, "the GPU stopped processing; mostly the program"),
    13: (PROGRAM, "the program's kernel failed (illegal address or instruction)"),
    31: (PROGRAM, "the program touched GPU memory that is not its own"),
    32: (CARD, "corrupted commands on the way to the GPU: PCIe or driver"),
    38: (CARD, "the firmware of the driver failed"),
    43: (PROGRAM, "the GPU stopped processing for one program, which failed"),
    45: (PROGRAM, "a program was ended while it used the GPU"),
    46: (CARD, "the GPU stopped processing"),
    48: (CARD, "an ECC error that could not be corrected (double bit)"),
    61: (CARD, "the GPU's own microcontroller broke off"),
    62: (CARD, "the GPU's own microcontroller halted"),
    63: (RESET, "a row of memory, or a page, is taken out of use: a reset finishes it"),
    64: (CARD, "a row of memory, or a page, could not be taken out of use"),
    68: (PROGRAM, "the video processor failed"),
    69: (PROGRAM, "the graphics engine was given wrong commands"),
    74: (CARD, "an NVLink failed"),
    79: (GONE, "the GPU has fallen off the bus"),
    92: (CARD, "many single-bit ECC errors"),
    94: (PROGRAM, "an ECC error was contained: only the program that met it failed"),
    95: (CARD, "an ECC error was not contained: all programs on the GPU failed"),
    109: (PROGRAM, "a program switched contexts for too long"),
    110: (CARD, "a security fault inside the GPU"),
    119: (CARD, "the GPU's firmware (GSP) does not answer the driver"),
    120: (CARD, "the GPU's firmware (GSP) failed"),
    121: (CARD, "the chip-to-chip link (C2C) failed"),
    123: (CARD, "the power manager of the GPU failed"),
    136: (CARD, "an NVLink failed in its training"),
    140: (CARD, "an ECC error that could not be recovered"),
    143: (CARD, "the GPU could not be initialised"),
    144: (CARD, "an NVLink error (SAW)"),
    145: (CARD, "an NVLink error (RLW)"),
    149: (CARD, "an NVLink error (NETIR)"),
    150: (CARD, "an NVLink error (MSE)"),
    154: (CARD, "the driver asks for a recovery of the GPU: reset or reboot"),
}
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, pid='?(\d+))?")
_SWITCH = re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal)")


class Told(NamedTuple):
    """One number of one card. `bus`: as nvidia-smi -i takes it; `pids`: of the programs that the
    kernel names."""

    bus: str
    number: int
    times: int
    pids: Tuple[int, ...]


def read(log: str) -> List[Told]:
    """In the order in which they came first."""
    found: Dict[Tuple[str, int], List[str]] = {}
    for bus, number, pid in _LINE.findall(log):
        found.setdefault((_whole(bus), int(number)), []).append(pid)
    return [
        Told(bus, number, len(pids), tuple(dict.fromkeys(int(pid) for pid in pids if pid)))
        for (bus, number), pids in found.items()
    ]


def _whole(bus: str) -> str:
    """With the function, which the kernel leaves out."""
    return bus.lower() if "." in bus else f"{bus.lower()}.0"


def switches(log: str) -> List[Tuple[str, int, bool]]:
    """(bus, SXid, fatal) of NVSwitches, each once."""
    found = [
        (bus.lower(), int(number), word == "Fatal") for bus, number, word in _SWITCH.findall(log)
    ]
    return list(dict.fromkeys(found))
