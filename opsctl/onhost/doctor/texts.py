"""`nvidia-smi -q -x`, `nvidia-smi topo -m`, `-p2p` and `rocm-smi`: what the query does not tell.

Pure parsers of real texts. What a driver does not know is "" or None, never a good value.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional
from xml.etree import ElementTree

SUMS = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
        "dram_uncorrectable", "device_memory_uncorrectable")  # fmt: skip


def details(text: str) -> Optional[Dict[str, Any]]:
    """{"driver", "cuda", "cards": [one a GPU, in nvidia-smi's order]}; None if it is no XML."""
    start = text.find("<nvidia_smi_log")
    if start < 0:
        return None
    try:
        top = ElementTree.fromstring(text[start:])
    except ElementTree.ParseError:
        return None
    return {
        "driver": _text(top, "driver_version"),
        "cuda": _text(top, "cuda_version"),
        "cards": [_card(number, gpu) for number, gpu in enumerate(top.findall("gpu"))],
    }


def _card(number: int, gpu: ElementTree.Element) -> Dict[str, Any]:
    reasons = (
        "clocks_event_reasons"
        if gpu.find("clocks_event_reasons") is not None
        else ("clocks_throttle_reasons")
    )
    prefix = reasons[: -len("s")]
    power = "gpu_power_readings" if gpu.find("gpu_power_readings") is not None else "power_readings"
    link = "pci/pci_gpu_link_info"
    return {
        "index": number,
        "bus": (gpu.get("id") or _text(gpu, "pci/pci_bus_id")).lower(),
        "name": _text(gpu, "product_name"),
        "persistence": _text(gpu, "persistence_mode"),
        "mig": _text(gpu, "mig_mode/current_mig"),
        "mig_pending": _text(gpu, "mig_mode/pending_mig"),
        "compute_mode": _text(gpu, "compute_mode"),
        "ecc": _text(gpu, "ecc_mode/current_ecc"),
        "ecc_pending": _text(gpu, "ecc_mode/pending_ecc"),
        "volatile": _sum(gpu, "ecc_errors/volatile"),
        "aggregate": _sum(gpu, "ecc_errors/aggregate"),
        "sram_threshold": _text(gpu, "ecc_errors/aggregate/sram_threshold_exceeded"),
        "retire_pending": _text(gpu, "retired_pages/pending_retirement"),
        "remap_pending": _text(gpu, "remapped_rows/remapped_row_pending"),
        "remap_failure": _text(gpu, "remapped_rows/remapped_row_failure"),
        "reset_required": _text(gpu, "gpu_reset_status/reset_required"),
        "recovery": _text(gpu, "gpu_recovery_action"),
        "gen": _number(gpu, f"{link}/pcie_gen/current_link_gen"),
        "gen_max": _number(gpu, f"{link}/pcie_gen/max_link_gen"),
        "width": _number(gpu, f"{link}/link_widths/current_link_width"),
        "width_max": _number(gpu, f"{link}/link_widths/max_link_width"),
        "pstate": _text(gpu, "performance_state"),
        "util": _number(gpu, "utilization/gpu_util"),
        "thermal": any(
            _text(gpu, f"{reasons}/{prefix}_{which}_thermal_slowdown") == "Active"
            for which in ("hw", "sw")
        ),
        "brake": _text(gpu, f"{reasons}/{prefix}_hw_power_brake_slowdown") == "Active",
        "power": _number(gpu, f"{power}/current_power_limit")
        or _number(gpu, f"{power}/power_limit"),
        "power_default": _number(gpu, f"{power}/default_power_limit"),
        "fabric": _text(gpu, "fabric/state"),
        "fabric_status": _text(gpu, "fabric/status"),
        # Xorg and its like are no compute processes, and hold memory all the same.
        "display": _text(gpu, "display_active") == "Enabled"
        or any("G" in (node.text or "") for node in gpu.iterfind("processes/process_info/type")),
    }  # fmt: skip


def _text(node: ElementTree.Element, path: str) -> str:
    """ "" for what is not there, and for nvidia-smi's own words for that."""
    text = (node.findtext(path) or "").strip()
    return "" if text in ("N/A", "[N/A]", "[Not Supported]", "Requested functionality has been "
                          "deprecated") else text  # fmt: skip


def _number(node: ElementTree.Element, path: str) -> Optional[float]:
    """The number before its unit: "600.00 W", "16x", "2 %"."""
    match = re.match(r"[\d.]+", _text(node, path))
    return float(match[0]) if match else None


def _sum(node: ElementTree.Element, path: str) -> Optional[int]:
    """Uncorrectable errors of all kinds; None if the card counts none."""
    counts = [_number(node, f"{path}/{name}") for name in SUMS]
    counts += [_number(node, f"{path}/double_bit/total")]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


# -- how the cards reach each other --------------------------------------------------------------


def topology(text: str) -> Optional[Dict[str, Any]]:
    """`nvidia-smi topo -m` → {"links": {(a, b): "NV18"}, "node": {gpu: NUMA node}}.

    A fixed width swallows tabs between wide columns ("NIC8NIC9", "NODENODE"): links among GPUs are
    read from the left, where nothing is glued yet; the rest from what follows the CPU list.
    """
    head = re.search(r"^[ \t]+((?:GPU\d+[ \t]*)+)", text, re.MULTILINE)
    if head is None:
        return None
    columns = [int(number) for number in re.findall(r"GPU(\d+)", head[1])]
    links: Dict[Any, str] = {}
    node: Dict[int, int] = {}
    for line in text.splitlines():
        row = re.match(r"GPU(\d+)\s+(.*)", line)
        if row is None:
            continue
        cells = row[2].split()
        for column, cell in zip(columns, cells):
            if cell != "X":
                links[(int(row[1]), column)] = cell
        affinity = re.search(r"\d+-\d+(?:,\d+-\d+)*\s+(\d+)\b", line)
        if affinity:
            node[int(row[1])] = int(affinity[1])
    return {"links": links, "node": node} if links or len(columns) == 1 else None


# -- AMD -----------------------------------------------------------------------------------------


def rocm(text: str) -> List[Dict[str, Any]]:
    """The table of `rocm-smi`, old and new: {"index", "temperature", "power", "cap", "partition"}.

    It shows memory only as a share, so nothing is said to be free; sysfs tells the bytes.
    """
    found = []
    for line in text.splitlines():
        temperature = re.match(r"(\d+)\s.*?([\d.]+)(?:°C|c)\s+([\d.]+)W", line)
        if temperature is None:
            continue
        cap = re.search(r"(?:auto|manual|high|low|determ)\s+([\d.]+)W", line)
        partition = re.search(r"(NPS\d), (\w+), \d", line)
        found.append(
            {
                "index": int(temperature[1]),
                "temperature": float(temperature[2]),
                "power": float(temperature[3]),
                "cap": float(cap[1]) if cap else None,
                "partition": partition[2] if partition else "",
            }
        )
    return found
