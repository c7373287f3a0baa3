"""The stand-in nvidia-smi: the table, and the queries that people and tools make of it.

Reads what the host's stand-in machine wrote. Says that it is a rehearsal in `--version` and below
the table, where no parser looks.
"""
# ruff: noqa: E501  (the table's own width)

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsctl.rehearsal import nvidia_details

GPUS = Path("/run/opsctl-rehearsal/gpus.json")
RULE = "+-----------------------------------------+------------------------+----------------------+"
NOTE = "REHEARSAL: no GPU is here, the figures come from a scenario file"

Gpu = Mapping[str, Any]
Box = Mapping[str, Any]

# query name -> (header as printed, value, unit that `nounits` leaves out)
GPU_QUERIES: dict[str, tuple[Callable[[Box, Gpu], object], str]] = {
    "index": (lambda b, g: g["index"], ""),
    "name": (lambda b, g: b["name"], ""),
    "gpu_name": (lambda b, g: b["name"], ""),
    "count": (lambda b, g: len(b["gpus"]), ""),
    "uuid": (lambda b, g: uuid(g), ""),
    "gpu_uuid": (lambda b, g: uuid(g), ""),
    "gpu_bus_id": (lambda b, g: bus(g), ""),
    "pci.bus_id": (lambda b, g: bus(g), ""),
    "serial": (lambda b, g: "[N/A]", ""),
    "driver_version": (lambda b, g: b["driver"], ""),
    "memory.total": (lambda b, g: g["total_mib"], "MiB"),
    "memory.used": (lambda b, g: g["used_mib"], "MiB"),
    "memory.free": (lambda b, g: g["total_mib"] - g["used_mib"], "MiB"),
    "memory.reserved": (lambda b, g: 0, "MiB"),
    "utilization.gpu": (lambda b, g: 0, "%"),
    "utilization.memory": (lambda b, g: 0, "%"),
    "temperature.gpu": (lambda b, g: 31, ""),
    "power.draw": (lambda b, g: "14.00", "W"),
    "power.limit": (lambda b, g: "600.00", "W"),
    "pstate": (lambda b, g: "P8", ""),
    "compute_cap": (lambda b, g: b["compute_capability"], ""),
    "persistence_mode": (lambda b, g: "Enabled", ""),
    "mig.mode.current": (lambda b, g: "Disabled", ""),
    "ecc.mode.current": (lambda b, g: "Disabled", ""),
    "ecc.errors.uncorrected.volatile.total": (lambda b, g: "[N/A]", ""),
    "compute_mode": (lambda b, g: "Default", ""),
    "pcie.link.gen.current": (lambda b, g: 1, ""),  # an idle card lowers its link
    "pcie.link.gen.max": (lambda b, g: 5, ""),
    "pcie.link.width.max": (lambda b, g: 16, ""),
    "pcie.link.width.current": (lambda b, g: 16, ""),
}
APP_QUERIES: dict[str, tuple[Callable[[Gpu, Mapping[str, Any]], object], str]] = {
    "pid": (lambda g, p: p["pid"], ""),
    "process_name": (lambda g, p: process_name(p["pid"]), ""),
    "name": (lambda g, p: process_name(p["pid"]), ""),
    "used_memory": (lambda g, p: p["mib"], "MiB"),
    "used_gpu_memory": (lambda g, p: p["mib"], "MiB"),
    "gpu_uuid": (lambda g, p: uuid(g), ""),
    "gpu_bus_id": (lambda g, p: bus(g), ""),
}


def uuid(gpu: Gpu) -> str:
    return f"GPU-00000000-0000-4000-8000-{gpu['index']:012d}"


def bus(gpu: Gpu) -> str:
    return f"00000000:{0x01 + 0x10 * gpu['index']:02X}:00.0"


def process_name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "[Not Found]"
    return words[0].decode(errors="replace") or "[Not Found]"


def csv(
    rows: list[list[tuple[str, object, str]]], names: Sequence[str], form: Sequence[str]
) -> str:
    """The answer to a query. `form`: the words of --format, as csv,noheader,nounits."""
    units = "nounits" not in form
    lines = []
    if "noheader" not in form:
        lines.append(", ".join(names))
    for row in rows:
        lines.append(", ".join(f"{v} {u}" if u and units else f"{v}" for _, v, u in row))
    return "".join(f"{line}\n" for line in lines)


def query_gpu(box: Box, fields: Sequence[str], form: Sequence[str], only: set[int] | None) -> str:
    rows = [
        [(f, GPU_QUERIES[f][0](box, g), GPU_QUERIES[f][1]) for f in fields]
        for g in box["gpus"]
        if only is None or g["index"] in only
    ]
    return csv(rows, [_header(f, GPU_QUERIES[f][1]) for f in fields], form)


def query_apps(box: Box, fields: Sequence[str], form: Sequence[str]) -> str:
    rows = [
        [(f, APP_QUERIES[f][0](g, p), APP_QUERIES[f][1]) for f in fields]
        for g in box["gpus"]
        for p in g["processes"]
    ]
    return csv(rows, [_header(f, APP_QUERIES[f][1]) for f in fields], form)


def _header(field: str, unit: str) -> str:
    spelled = {"used_memory": "used_gpu_memory"}.get(field, field)
    return f"{spelled} [{unit}]" if unit else spelled


def table(box: Box, now: str) -> str:
    """The table that a bare `nvidia-smi` prints."""
    lines = [
        now,
        "+-----------------------------------------------------------------------------------------+",
        f"| NVIDIA-SMI {box['driver']:<22} Driver Version: {box['driver']:<14} CUDA Version: {box['cuda']:<8} |",
        RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        RULE.replace("-", "=").replace("+", "|", 1)[:-1] + "|",
    ]
    for gpu in box["gpus"]:
        name = box["name"] if len(box["name"]) <= 27 else box["name"][:24] + "..."
        lines += [
            f"|{gpu['index']:>4}  {name:<27}     On |   {bus(gpu)} Off |                  N/A |",
            f"| 30%   31C    P8             14W /  600W | {gpu['used_mib']:>7}MiB / {gpu['total_mib']:>6}MiB |      0%      Default |",
            "|                                         |                        |             Disabled |",
            RULE,
        ]
    lines += [
        "",
        "+-----------------------------------------------------------------------------------------+",
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
        *_processes(box),
        "+-----------------------------------------------------------------------------------------+",
        f"# {NOTE}",
    ]
    return "\n".join(lines) + "\n"


def _processes(box: Box) -> list[str]:
    rows = [
        f"| {g['index']:>4}   N/A  N/A {p['pid']:>16}      C   {process_name(p['pid'])[:34]:<34} {p['mib']:>7}MiB |"
        for g in box["gpus"]
        for p in g["processes"]
    ]
    return rows or [f"|  {'No running processes found':<87}|"]


def version(box: Box) -> str:
    return (
        f"NVIDIA-SMI version  : {box['driver']}\nNVML version        : {box['driver'][:6]}\n"
        f"DRIVER version      : {box['driver']}\nCUDA Version        : {box['cuda']}\n"
        f"# {NOTE}\n"
    )


def answer(argv: Sequence[str], box: Box, now: str) -> tuple[str, int]:
    """What is printed for a command line, and the exit code."""
    options = dict(_options(argv))
    form = options.get("--format", "").split(",")
    if "--version" in options:
        return version(box), 0
    if "-q" in options and "-x" in options:
        return nvidia_details.xml(box, bus, uuid), 0
    if argv[:1] == ["topo"]:
        return (nvidia_details.peers if "-p2p" in options else nvidia_details.topology)(box), 0
    if "-L" in options or "--list-gpus" in options:
        return "".join(
            f"GPU {g['index']}: {box['name']} (UUID: {uuid(g)})\n" for g in box["gpus"]
        ), 0
    for option, known in (("--query-gpu", GPU_QUERIES), ("--query-compute-apps", APP_QUERIES)):
        if option not in options:
            continue
        fields = [f.strip() for f in options[option].split(",")]
        unknown = [f for f in fields if f not in known]
        if unknown:
            return f'Field "{unknown[0]}" is not a valid field to query.\n', 2
        if option == "--query-compute-apps":
            return query_apps(box, fields, form), 0
        only = options.get("-i") or options.get("--id")
        return query_gpu(box, fields, form, {int(n) for n in only.split(",")} if only else None), 0
    return table(box, now), 0


def _options(argv: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in argv:
        name, _, value = word.partition("=")
        if word.startswith("-"):
            found.append((name, value))
        elif found and not found[-1][1]:
            found[-1] = (found[-1][0], word)
    return found


def main() -> int:
    try:
        box = json.loads(GPUS.read_text())
    except (OSError, ValueError):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
            "that the latest NVIDIA driver is installed and running.\n"
            f"({NOTE}; opsctl-rehearsal-machine.service does not run)"
        )
        return 9
    printed, code = answer(sys.argv[1:], box, time.strftime("%a %b %d %H:%M:%S %Y"))
    print(printed, end="")
    return code


if __name__ == "__main__":
    sys.exit(main())
