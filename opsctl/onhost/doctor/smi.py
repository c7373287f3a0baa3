"""What nvidia-smi said of the cards, and why it could not be asked. Pure.

nvidia-smi is asked for the same in several ways, since a sick card keeps it from some of them.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from opsctl.onhost import gpubus, gpufacts, hostfacts, unitfacts
from opsctl.onhost.asking import HUNG, MISSING, OK
from opsctl.onhost.doctor import texts

ASKED = ("smi", "smi-cards", "smi-short")
NO_FIGURES = {"memory_total": 0, "memory_used": 0}
NONE = "No devices were found"  # the driver was asked, and knows no card


class Silence(NamedTuple):
    """Why nobody could ask the cards; their number is unknown then. `fault`: one of driver's."""

    fault: str
    detail: str


def out(seen: Mapping[str, Any], name: str) -> str:
    return str((seen["commands"].get(name) or {}).get("out") or "")


def state(seen: Mapping[str, Any], name: str) -> str:
    return str((seen["commands"].get(name) or {}).get("state") or MISSING)


def cards_on_bus(seen: Mapping[str, Any]) -> List[str]:
    return gpubus.on_bus(seen["pci"])


def version(seen: Mapping[str, Any]) -> str:
    """Of the module in the kernel; in a container that hides it, as nvidia-smi tells it."""
    loaded = unitfacts.driver(seen["files"].get("/proc/driver/nvidia/version", ""))
    details_ = texts.details(out(seen, "smi-details")) or {}
    table = hostfacts.parse_gpu_table(out(seen, "smi"))["driver"]
    short = re.search(r", (\d+\.\d+[.\d]*)$", out(seen, "smi-short"), re.MULTILINE)
    return loaded or details_.get("driver") or table or (short[1] if short else "")


def known(seen: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The cards with their state: as the long query tells them, else the short one, the table, or
    AMD's sysfs. Of two answers the worse one counts: nvidia-smi's table tells of MIG and of ERR!
    where a query tells nothing. A card that only the table shows did not answer the query."""
    listed = gpufacts.parse(out(seen, "smi-cards"))
    if listed is None:
        listed = [_card(gpu) for gpu in hostfacts.parse_gpus(out(seen, "smi-short"))]
    drawn = hostfacts.parse_gpu_table(out(seen, "smi"))["gpus"]
    if not listed:
        listed = [_card(gpu) for gpu in drawn]
    worse = {gpu["index"]: gpu["state"] for gpu in drawn if gpu["state"] != "ok"}
    for card in listed:
        if card["state"] == "ok" and card["index"] in worse:
            card.update(state=worse[card["index"]], **NO_FIGURES)
    told = {card["index"] for card in listed}
    listed += [
        {**_card(gpu), **NO_FIGURES, "state": "lost" if gpu["state"] == "lost" else "error"}
        for gpu in drawn
        if gpu["index"] not in told
    ]
    listed.sort(key=lambda card: int(card["index"]))
    return gpubus.completed(listed, cards_on_bus(seen)) or list(seen["amd"])


def _card(gpu: Mapping[str, Any]) -> Dict[str, Any]:
    return {**gpu, "capability": None}


def details(seen: Mapping[str, Any], cards: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """What `-q -x` tells of each card that answers. It leaves a lost one out and does not number
    the others, so the index is that of the card at the same place on the bus."""
    places = {gpubus.short(card["bus"]): card["index"] for card in cards if card.get("bus")}
    told = (texts.details(out(seen, "smi-details")) or {}).get("cards", [])
    found = [{**one, "index": places.get(gpubus.short(one["bus"]), one["index"])} for one in told]
    silent = [card["index"] for card in cards if card["state"] in ("lost", "error")]
    return [one for one in found if one["index"] not in silent]


def silence(seen: Mapping[str, Any]) -> Optional[Silence]:
    """None if nvidia-smi answers, and where nothing of NVIDIA's is."""
    cards, loaded, error = cards_on_bus(seen), version(seen), _error(seen)
    asked = {name: state(seen, name) for name in ASKED if name in seen["commands"]}
    missing = all(one == MISSING for one in asked.values())
    if "mismatch" in error:
        library = re.search(r"NVML library version: (\S+)", _said(seen))
        of = f", the library is {library[1]}" if library else ""
        return Silence("driver-mismatch", f"{error} (the kernel has {loaded or 'another'}{of})")
    if cards and not loaded and "/proc/driver/nvidia/version" not in seen["files"]:
        return Silence("driver-none", f"{len(cards)} NVIDIA cards on the bus, no driver is loaded")
    if missing:
        told = "nvidia-smi is not on this host"
        return Silence("driver-smi-missing", told) if cards or loaded else None
    if HUNG in asked.values():
        return Silence("driver-hangs", "nvidia-smi did not answer within its limit")
    if error:
        more = "" if cards or loaded else " (and no NVIDIA card shows on the PCI bus)"
        return Silence("driver-dead", error + more)
    return _broken(seen)


def _broken(seen: Mapping[str, Any]) -> Optional[Silence]:
    """nvidia-smi that ends by a signal, or says nothing of any card."""
    there = [seen["commands"][name] for name in ASKED if state(seen, name) == OK]
    killed = next((one["rc"] for one in there if (one["rc"] or 0) < 0), 0)
    if killed:
        return Silence("driver-smi-broken", f"nvidia-smi was ended by {_signal(-killed)}")
    if NONE in _said(seen) or any(card.get("vendor") != "amd" for card in known(seen)):
        return None
    lines = [line.strip() for line in _said(seen).splitlines() if line.strip()]
    said = f"said only: {lines[0][:120]}" if lines else "said nothing"
    return Silence("driver-smi-broken", f"nvidia-smi ended with {there[0]['rc']} and {said}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(seen: Mapping[str, Any]) -> str:
    return "\n".join(out(seen, name) for name in seen["commands"] if name.startswith("smi"))


def _error(seen: Mapping[str, Any]) -> str:
    """NVML's own words for why it tells nothing."""
    told = (hostfacts.parse_gpu_table(out(seen, name))["error"] for name in ASKED)
    return next((str(one).strip() for one in told if one), "")
