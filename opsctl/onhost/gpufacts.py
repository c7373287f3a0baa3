"""More of the GPUs than memory: compute capability, PCIe link, NUMA node, whose processes.

nvidia-smi is asked once for all of it, and once for the processes, at the same time; both with
the limit of hostfacts.run, so that a sick GPU holds nobody up. AMD cards are read from sysfs.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, Optional, Tuple

from opsctl.onhost import gpubus, hostfacts
from opsctl.onhost.hostfacts import BUS, PLAIN, read

# An idle GPU lowers its link: the most that card and slot can do is what counts under load.
MORE = ("compute_cap", "pci.bus_id", "pcie.link.gen.max", "pcie.link.width.max")
LIMIT = 10.0  # seconds
LANES = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5,
         "64": 6, "64.0": 6}  # fmt: skip


def report() -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """GPUs as hostfacts.gpus tells them, with "vendor", "capability", "bus", "link", "node"; and
    the processes on them."""
    with ThreadPoolExecutor(1) as pool:
        apps = pool.submit(hostfacts.run, hostfacts.PROCESS_QUERY, LIMIT)
        cards = parse(hostfacts.run(query(), LIMIT))
        if cards is None:  # a driver that does not know one of the fields
            cards = [
                _more(gpu, []) for gpu in hostfacts.parse_gpus(hostfacts.run(hostfacts.GPU_QUERY))
            ]
        text = apps.result()
    cards = [
        _more(card, []) | card for card in gpubus.completed(cards, gpubus.on_bus(gpubus.pci()))
    ]
    for card in cards:
        place(card)
    return cards or amd(), hostfacts.parse_gpu_processes(text, cards)


def query() -> List[str]:
    """hostfacts.GPU_QUERY with more columns behind its own."""
    head = hostfacts.GPU_QUERY[1] + "," + ",".join(MORE)
    return [hostfacts.GPU_QUERY[0], head, *hostfacts.GPU_QUERY[2:]]


def parse(text: str) -> Optional[List[Dict[str, Any]]]:
    """The answer to the long query; None if a field is not known there."""
    if "not a valid field" in text:
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    more = {int(cells[0]): cells[PLAIN:] for cells in rows if cells[0].isdigit()}
    # Whether a GPU is well is judged by the columns that the short query has.
    plain = "\n".join(",".join(cells[:PLAIN]) for cells in rows)
    return [_more(gpu, more.get(gpu["index"], [])) for gpu in hostfacts.parse_gpus(plain)]


def _more(gpu: Dict[str, Any], cells: List[str]) -> Dict[str, Any]:
    cells = [*cells, "", "", "", ""]
    capability = re.fullmatch(r"(\d+)\.(\d+)", cells[0])
    known = cells[2].isdigit() and cells[3].isdigit()
    return {
        **gpu,
        "vendor": "nvidia",
        "capability": [int(capability[1]), int(capability[2])] if capability else None,
        "bus": cells[1].lower() if BUS.fullmatch(cells[1]) else gpu["bus"],
        "link": {"generation": int(cells[2]), "width": int(cells[3])} if known else None,
        "node": None,
    }


def place(card: Dict[str, Any], sys: str = "/sys") -> None:
    """The NUMA node of a card, and its link where nvidia-smi did not tell it."""
    bus = re.fullmatch(r"(?:0000)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)", card.get("bus") or "")
    if bus is None:
        return
    folder = f"{sys}/bus/pci/devices/{bus[1]}"
    card["node"] = node_of(folder)
    card["link"] = card["link"] or link_of(folder)


def node_of(folder: str) -> Optional[int]:
    """None where there is but one node, or the firmware does not tell (-1)."""
    text = read(f"{folder}/numa_node").strip()
    return int(text) if text.isdigit() else None


def link_of(folder: str) -> Optional[Dict[str, int]]:
    """Generation and width as sysfs tells them: the most that the card can do, not the slot."""
    speed = re.match(r"([\d.]+) GT/s", read(f"{folder}/max_link_speed"))
    width = read(f"{folder}/max_link_width").strip()
    if speed is None or speed[1] not in LANES or not width.isdigit():
        return None
    return {"generation": LANES[speed[1]], "width": int(width)}


def amd(sys: str = "/sys") -> List[Dict[str, Any]]:
    """AMD's cards with memory of their own, by bus address, as amdgpu shows them."""
    found: List[Dict[str, Any]] = []
    folder = f"{sys}/class/drm"
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in names:
        device = f"{folder}/{name}/device"
        total = read(f"{device}/mem_info_vram_total").strip()
        if not re.fullmatch(r"card\d+", name) or not total.isdigit() or not int(total):
            continue
        used = read(f"{device}/mem_info_vram_used").strip()
        found.append(
            {
                "name": read(f"{device}/product_name").strip(),
                "uuid": "",
                "memory_total": int(total),
                "memory_used": int(used) if used.isdigit() else 0,
                "state": "ok",
                "vendor": "amd",
                "capability": None,
                "bus": os.path.basename(os.path.realpath(device)),
                "link": link_of(device),
                "node": node_of(device),
            }
        )
    found.sort(key=lambda card: str(card["bus"]))
    return [{"index": index, **card} for index, card in enumerate(found)]


def strangers(
    processes: Iterable[Dict[str, Any]], owners: Dict[int, str], service: str
) -> List[Dict[str, Any]]:
    """GPU processes that are not this service's: {"gpu", "pid", "memory", "comm", "service"}.
    `owners`: PID → service, for all services of ours."""
    found: List[Dict[str, Any]] = []
    for process in processes:
        owner = owners.get(process["pid"], "")
        if owner != service or not owner:
            status = hostfacts.parse_status(read(f"/proc/{process['pid']}/status"))
            found.append({**process, "comm": status["name"], "service": owner})
    return found
