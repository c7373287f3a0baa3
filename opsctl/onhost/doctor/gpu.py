"""`doctor` on the cards: which are there, which are well, how they are linked. Pure."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from opsctl.onhost.doctor import onecard, smi, texts
from opsctl.onhost.doctor.fault import FAIL, WARN, Fault, Finding, Found, table
from opsctl.onhost.doctor.smi import cards_on_bus, known, out, state
from opsctl.onhost.gpubus import short

RESET = "drain the host; nvidia-smi -r -i {gpu}, or reboot"
VENDOR = "take the card out of service; the vendor replaces it"
FAULTS = table(
    Fault("gpu-none", "gpus", FAIL, "no GPU where one is needed",
          "no card that the driver knows; the engine would end at once, or serve from the CPU",
          "lspci -d 10de:; nvidia-smi", True),
    Fault("gpu-lost", "gpus", FAIL, "a lost GPU",
          "the driver lost the card; mostly power, heat or PCIe",
          "journalctl -k -b | grep Xid; power the host off and on", True),
    Fault("gpu-error", "gpus", FAIL, "a GPU in ERR!",
          "the card answers with errors; its figures look like those of a free one",
          RESET, True),
    Fault("gpu-off-bus", "gpus", FAIL, "a card on the bus that nvidia-smi does not list",
          "the driver could not initialise it, or has given it up",
          "journalctl -k -b | grep -iE 'nvrm|{bus}'; power the host off and on", True),
    Fault("gpu-too-few", "gpus", FAIL, "fewer GPUs than the ranks take",
          "a rank without a GPU ends the start",
          "nvidia-smi -L; else lower tp-size, pp-size or dp-size of {service}", True),
    Fault("gpu-absent", "gpus", FAIL, "a GPU that is described and not there",
          "`gpus` of the description names an index that this host does not have",
          "nvidia-smi -L; then correct `gpus` of {service}", True),
    Fault("gpu-mig", "mig", FAIL, "a GPU that is split by MIG",
          "no process can allocate the whole card; its total is that of no instance",
          "nvidia-smi -i {gpu} -mig 0, then nvidia-smi -r -i {gpu}", True),
    Fault("gpu-mig-pending", "mig", WARN, "a change of MIG that waits",
          "it takes effect at the next reset of the card, or reboot",
          "nvidia-smi -r -i {gpu} when drained, or nvidia-smi -i {gpu} -mig {now} to take it back"),
    Fault("gpu-partitioned", "mig", WARN, "an AMD card in partitions",
          "each partition shows as a card of its own with a share of the memory",
          "rocm-smi --setcomputepartition SPX"),
    Fault("gpu-mixed", "gpus", WARN, "GPUs of different kinds under one service",
          "each rank gets the KV cache of the smallest card, at the pace of the slowest",
          "name equal cards in `gpus` of {service}"),
    Fault("gpu-old", "architecture", FAIL, "a GPU too old for the engine",
          "SGLang and its kernels begin at compute capability {least}", "take another host", True),
    Fault("gpu-new", "architecture", FAIL, "a GPU that torch holds no code for",
          "this release's torch is built for {known}", "take a newer release of SGLang", True),
    Fault("ecc-volatile", "ecc", FAIL, "ECC errors since boot that could not be corrected",
          "what was computed there may be wrong", RESET),
    Fault("ecc-aggregate", "ecc", WARN, "ECC errors in the life of the card",
          "they were met before this boot; a card that goes on counting wears out",
          "nvidia-smi -q -d ECC -i {gpu}; watch whether it grows"),
    Fault("ecc-sram", "ecc", FAIL, "too many errors of the on-chip memory",
          "the threshold of the vendor is exceeded", VENDOR),
    Fault("ecc-pending", "ecc", WARN, "a change of ECC that waits",
          "it takes effect at the next reset, and changes how much memory the card has",
          "nvidia-smi -r -i {gpu} when drained"),
    Fault("rows-pending", "ecc", FAIL, "rows of memory that wait to be taken out of use",
          "an error was met there; until a reset the row is still used", RESET),
    Fault("rows-failed", "ecc", FAIL, "rows of memory that could not be taken out of use",
          "the card has no spare rows left", VENDOR),
    Fault("pages-pending", "ecc", WARN, "pages of memory that wait to be retired",
          "an error was met there; the next reset or reboot retires them", RESET),
    Fault("gpu-reset", "gpus", FAIL, "a GPU that asks for a reset",
          "the driver met an error that only a reset clears", RESET),
    Fault("gpu-recovery", "gpus", FAIL, "a GPU that asks for a recovery",
          "the driver says what it takes: {action}", RESET),
    Fault("persistence-off", "persistence", WARN, "persistence mode off",
          "the driver lets go of idle cards: the next start waits for it, and settings are lost",
          "systemctl enable --now nvidia-persistenced.service, or nvidia-smi -pm 1"),
    Fault("compute-prohibited", "compute-mode", FAIL, "a card that takes no compute",
          "its compute mode is Prohibited", "nvidia-smi -i {gpu} -c DEFAULT", True),
    Fault("compute-exclusive", "compute-mode", WARN, "a card for one process only",
          "a second process on it fails, be it a draft's or a tool's",
          "nvidia-smi -i {gpu} -c DEFAULT"),
    Fault("link-narrow", "link", WARN, "a PCIe link with lanes missing",
          "a card that sits loose, a riser, or a slot with fewer lanes",
          "nvidia-smi -q -i {gpu} | grep -A12 'GPU Link Info'; reseat the card"),
    Fault("link-slow", "link", WARN, "a PCIe link that is slow under load",
          "idle cards lower their link, this one works: signal quality, a riser, the firmware",
          "nvidia-smi -q -i {gpu} | grep -A12 'GPU Link Info'; reseat the card"),
    Fault("power-cap", "power", WARN, "a power limit below the card's own",
          "somebody set it; the card computes slower than its kind",
          "nvidia-smi -i {gpu} -pl {watts}"),
    Fault("power-brake", "power", FAIL, "a power brake",
          "the power supply or the chassis asks the card to slow down",
          "look at the power supplies of the host (ipmitool sdr)"),
    Fault("thermal", "power", WARN, "a card that slows down for heat",
          "cooling does not keep up",
          "nvidia-smi -q -d TEMPERATURE -i {gpu}; look at fans and inlet"),
    Fault("sensor-dead", "power", WARN, "a card whose sensors tell nonsense",
          "temperature or power cannot be", "rocm-smi --showtemp --showpower; the vendor"),
    Fault("fabric-wait", "fabric", FAIL, "a GPU that has not joined the NVLink fabric",
          "no CUDA program starts on it (error 802: system not yet initialized)",
          "systemctl restart nvidia-fabricmanager; nvidia-smi -q -i {gpu} | grep -A3 Fabric", True),
)  # fmt: skip


def judge(seen: Mapping[str, Any]) -> List[Finding]:
    """`seen`: the whole look."""
    found = Found(FAULTS)
    cards = known(seen)
    _presence(seen, cards, found)
    _split(cards, wanted(seen["services"]), found)
    for service in seen["services"]:
        _service(seen, service, cards, found)
    for one in smi.details(seen, cards):
        onecard.judge(one, found)
    _amd(seen, found)
    _passes(seen, cards, found)
    return found.list


def blocking(seen: Mapping[str, Any], manifest: Mapping[str, Any]) -> List[Finding]:
    """What of it concerns one release before its start; `seen`: the look before it."""
    found = Found(FAULTS)
    cards = known(seen)
    service = {"service": str(manifest.get("service")), "manifest": manifest}
    mine = wanted([service])
    _presence(seen, cards, found, manifest.get("gpus"))
    _split(cards, mine, found)
    _service(seen, service, cards, found)
    for one in smi.details(seen, cards):
        if mine is None or one["index"] in mine:
            onecard.judge(one, found)
    return found.list


def wanted(services: Sequence[Mapping[str, Any]]) -> Optional[List[int]]:
    """Indices of the cards that services are to run on; None for all that there are."""
    asking = [s["manifest"] for s in services if s["manifest"].get("needs")]
    if any(manifest.get("gpus") is None for manifest in asking):
        return None
    return sorted({index for manifest in asking for index in manifest["gpus"]})


def free(cards: Sequence[Mapping[str, Any]]) -> List[int]:
    """Indices of the cards that a release could take: sound ones only."""
    return [card["index"] for card in cards if card["state"] == "ok"]


def _presence(
    seen: Mapping[str, Any],
    cards: Sequence[Mapping[str, Any]],
    found: Found,
    only: Optional[Sequence[int]] = None,
) -> None:
    """`only`: indices that matter; a card that is not one of them keeps nobody from starting."""
    there = {card["index"] for card in cards}
    for card in cards:
        index = card["index"]
        maybe = index < 0 and not there.issuperset(only or ())  # lost, and nobody knows which
        if only is not None and index not in only and not maybe:
            continue
        at = f" ({card['bus']})" if card.get("bus") else ""
        where = f"GPU {index}{at}" if index >= 0 else f"the GPU at {card['bus'] or 'some bus'}"
        if card["state"] == "lost":
            found.fault("gpu-lost", f"{where} is lost")
        elif card["state"] == "error":
            found.fault("gpu-error", f"{where} {card['name']} is in ERR!", gpu=index)
    listed = {short(card["bus"]) for card in cards if card.get("bus")}
    lost = sum(card["state"] == "lost" and not card["bus"] for card in cards)
    absent = [bus for bus in cards_on_bus(seen) if short(bus) not in listed]
    if only is None and any(card["state"] != "lost" and card["bus"] for card in cards):
        for bus in absent[: len(absent) - lost] if lost <= len(absent) else []:
            found.fault("gpu-off-bus", f"{bus} is on the bus, nvidia-smi does not list it", bus=bus)


def _split(cards: Sequence[Mapping[str, Any]], mine: Optional[Sequence[int]], found: Found) -> None:
    """A split card that no service is to run on is as somebody wants it."""
    for card in cards:
        index = card["index"]
        if card["state"] == "mig" and (mine is None or index in mine):
            found.fault("gpu-mig", f"GPU {index} {card['name']} is split by MIG", gpu=index)


def _service(
    seen: Mapping[str, Any],
    service: Mapping[str, Any],
    cards: Sequence[Mapping[str, Any]],
    found: Found,
) -> None:
    manifest, name = service["manifest"], service["service"]
    needs = manifest.get("needs")
    if not needs:  # an engine on the CPU, or a release of which nothing is known
        return
    ranks = len(manifest.get("ranks") or ())
    if not cards:
        if smi.silence(seen) is None:  # else nobody knows which cards are here
            on_bus = len(cards_on_bus(seen))
            here = f"{on_bus} are on the bus, the driver knows none" if on_bus else "no GPU is here"
            found.fault("gpu-none", f"{here}, {name} takes {ranks}", name)
        return
    if all(card["state"] == "lost" for card in cards):
        return  # nvidia-smi told of these alone, which is said of each; the others may be well
    mine = _own(manifest.get("gpus"), name, cards, found)
    sound = [card for card in mine if card["state"] == "ok"]
    untold = sum(card["state"] == "untold" for card in mine)
    if mine and len(sound) + untold < ranks:
        of = f" of {len(mine)}" if len(mine) != len(sound) else ""
        most = f"at most {len(sound) + untold}" if untold else f"{len(sound)}"
        are = "is" if most + of == "1" else "are"
        text = f"{name} takes {ranks} GPUs, {most}{of} {are} sound"
        found.fault("gpu-too-few", text, name)
    _kinds(name, sound[:ranks], found)
    for card in sound[:ranks] if card_names(sound) else []:
        _architecture(name, card, needs, found)


def _own(
    chosen: Optional[Sequence[int]],
    name: str,
    cards: Sequence[Mapping[str, Any]],
    found: Found,
) -> List[Mapping[str, Any]]:
    """The cards that the service is to run on; empty if one of them is not here. A lost card of
    which nobody knows the index may be the one that is missed."""
    if chosen is None:
        return list(cards)
    by_index = {card["index"]: card for card in cards}
    absent = [index for index in chosen if index not in by_index]
    if len(absent) > sum(card["index"] < 0 for card in cards):
        told = ", ".join(map(str, absent))
        found.fault("gpu-absent", f"GPU {told} is not here (there are {len(cards)})", name)
        return []
    return [by_index[index] for index in chosen if index in by_index]


def card_names(cards: Sequence[Mapping[str, Any]]) -> List[str]:
    return sorted({str(card["name"]) for card in cards if card.get("name")})


def _kinds(name: str, cards: Sequence[Mapping[str, Any]], found: Found) -> None:
    kinds = card_names(cards)
    if len(kinds) > 1:
        found.fault("gpu-mixed", f"{name} runs on {' and '.join(kinds)}", name)


def _architecture(
    name: str, card: Mapping[str, Any], needs: Mapping[str, Any], found: Found
) -> None:
    capability = card.get("capability")
    if not capability or card.get("vendor") == "amd":
        return
    told = (
        f"GPU {card['index']} {card['name']} has compute capability {capability[0]}.{capability[1]}"
    )
    least = [int(part) for part in needs["capability"].split(".")]
    if list(capability) < least:
        found.fault("gpu-old", told, name, least=needs["capability"])
        return
    built = [[int(part) for part in one.split(".")] for one in needs["architectures"]]
    same = any(one[0] == capability[0] and one[1] <= capability[1] for one in built)
    if not same and not (needs["ptx"] and max(built) < list(capability)):
        found.fault("gpu-new", told, name, known=", ".join(needs["architectures"]))


def _amd(seen: Mapping[str, Any], found: Found) -> None:
    for card in texts.rocm(out(seen, "rocm")):
        where = f"GPU {card['index']}"
        if card["partition"] not in ("", "SPX"):
            found.fault("gpu-partitioned", f"{where} is in {card['partition']} mode")
        cap = card["cap"]
        if card["temperature"] > 150 or (cap and card["power"] > 2 * cap):
            text = f"{where} shows {card['temperature']:.0f} °C and {card['power']:.0f} W"
            found.fault("sensor-dead", text)


def _passes(seen: Mapping[str, Any], cards: Sequence[Mapping[str, Any]], found: Found) -> None:
    if not cards:
        return
    sound = free(cards)
    kinds = ", ".join(card_names(cards)) or "GPUs"
    found.passed("gpus", f"{len(sound)} × {kinds}")
    if cards[0].get("vendor") == "amd":
        return
    split = [str(card["index"]) for card in cards if card["state"] == "mig"]
    found.passed(
        "mig",
        f"GPU {', '.join(split)} is split, no service is to run there"
        if split
        else "no card is split",
    )
    if texts.details(out(seen, "smi-details")) is None:
        hung = state(seen, "smi-details")
        why = "nvidia-smi -q -x gave no answer" if hung != "ok" else "nvidia-smi -q -x is no XML"
        for check in ("ecc", "persistence", "link", "power", "compute-mode"):
            found.unknown(check, why, mend="nvidia-smi -q")
        return
    found.passed("ecc", "no uncorrectable error, no row that waits")
    found.passed("persistence", "on")
    found.passed("link", "all lanes are there")
    found.passed("power", "no limit, brake or heat")
    found.passed("compute-mode", "Default")
    if any(card.get("capability") for card in cards):
        found.passed("architecture", "torch holds code for these cards")
