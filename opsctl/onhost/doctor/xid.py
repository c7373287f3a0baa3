"""What an Xid in the kernel's log means: the numbers that tell of the card, and of the program.

Source: NVIDIA, "Xid Errors" (the catalogue and its guide to common Xids). Of a number that is not
listed only the number is told.
"""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

# number → (the card itself is at fault, meaning)
XIDS: Dict[int, Tuple[bool, str]] = {
    8: (False, "the GPU stopped processing; mostly the program"),
    13: (False, "the program's kernel failed (illegal address or instruction)"),
    31: (False, "the program touched GPU memory that is not its own"),
    32: (True, "corrupted commands on the way to the GPU: PCIe or driver"),
    38: (True, "the firmware of the driver failed"),
    43: (False, "the GPU stopped processing for one program, which failed"),
    45: (False, "a program was ended while it used the GPU"),
    46: (True, "the GPU stopped processing"),
    48: (True, "an ECC error that could not be corrected (double bit)"),
    61: (True, "the GPU's own microcontroller broke off"),
    62: (True, "the GPU's own microcontroller halted"),
    63: (False, "a row of memory, or a page, was taken out of use: a reset finishes it"),
    64: (True, "a row of memory, or a page, could not be taken out of use"),
    68: (False, "the video processor failed"),
    69: (False, "the graphics engine was given wrong commands"),
    74: (True, "an NVLink failed"),
    79: (True, "the GPU has fallen off the bus"),
    92: (True, "many single-bit ECC errors"),
    94: (False, "an ECC error was contained: only the program that met it failed"),
    95: (True, "an ECC error was not contained: all programs on the GPU failed"),
    109: (False, "a program switched contexts for too long"),
    110: (True, "a security fault inside the GPU"),
    119: (True, "the GPU's firmware (GSP) does not answer the driver"),
    120: (True, "the GPU's firmware (GSP) failed"),
    121: (True, "the chip-to-chip link (C2C) failed"),
    123: (True, "the power manager of the GPU failed"),
    136: (True, "an NVLink failed in its training"),
    140: (True, "an ECC error that could not be recovered"),
    143: (True, "the GPU could not be initialised"),
    144: (True, "an NVLink error (SAW)"),
    145: (True, "an NVLink error (RLW)"),
    149: (True, "an NVLink error (NETIR)"),
    150: (True, "an NVLink error (MSE)"),
    154: (True, "the driver asks for a recovery of the GPU: reset or reboot"),
}
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_SWITCH = re.compile(r"nvidia-nvswitch\d*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Fatal|Non-fatal)")


def read(log: str) -> List[Tuple[str, int, int]]:
    """(bus, Xid, how often) in the order in which they came first."""
    counts: Dict[Tuple[str, int], int] = {}
    for bus, number in _LINE.findall(log):
        key = (bus.lower(), int(number))
        counts[key] = counts.get(key, 0) + 1
    return [(bus, number, times) for (bus, number), times in counts.items()]


def switches(log: str) -> List[Tuple[str, int, bool]]:
    """(bus, SXid, fatal) of NVSwitches, each once."""
    found = [
        (bus.lower(), int(number), word == "Fatal") for bus, number, word in _SWITCH.findall(log)
    ]
    return list(dict.fromkeys(found))
