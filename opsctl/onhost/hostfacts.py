"""What a host says about itself: pure parsers of real texts, and thin readers around them.

All sizes are bytes. /proc writes "kB" and means KiB; nvidia-smi writes MiB.
used = total − available, as procps 4 prints it: procps 3.3 leaves pools that are shared memory out.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from opsctl.onhost.asking import OK, ask

KiB = 1 << 10
MiB = 1 << 20

GPU_QUERY = [
    "nvidia-smi",
    "--query-gpu=index,name,uuid,memory.total,memory.used,mig.mode.current,driver_version",
    "--format=csv,noheader,nounits",
]
PLAIN = 7  # its columns
PROCESS_QUERY = [
    "nvidia-smi",
    "--query-compute-apps=gpu_uuid,pid,used_memory",
    "--format=csv,noheader,nounits",
]


def parse_meminfo(text: str) -> Dict[str, int]:
    """/proc/meminfo → total, available, free, swap_total, swap_used, hugetlb, shared in bytes.

    Kernels before 4.19 have no Hugetlb line: then pages × page size of the default size.
    ValueError if there is no MemTotal or MemAvailable.
    """
    found: Dict[str, int] = {}
    for match in re.finditer(r"^([\w()]+):\s+(\d+)( kB)?\s*$", text, re.MULTILINE):
        found[match[1]] = int(match[2]) * (KiB if match[3] else 1)
    for name in ("MemTotal", "MemAvailable"):
        if name not in found:
            raise ValueError(f"/proc/meminfo has no {name}")
    pages = found.get("HugePages_Total", 0) * found.get("Hugepagesize", 0)
    return {
        "total": found["MemTotal"],
        "available": found["MemAvailable"],
        "free": found.get("MemFree", 0),
        "swap_total": found.get("SwapTotal", 0),
        "swap_used": found.get("SwapTotal", 0) - found.get("SwapFree", 0),
        "hugetlb": found.get("Hugetlb", pages),
        "shared": found.get("Shmem", 0),
    }


def parse_properties(text: str) -> Dict[str, str]:
    """KEY=VALUE lines without their quotes: `systemctl show`, os-release."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key and not key.startswith("#"):
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            found[key.strip()] = value
    return found


def parse_limits(text: str) -> Dict[str, Tuple[Optional[int], Optional[int]]]:
    """/proc/PID/limits → {"Max locked memory": (soft, hard)}; None means unlimited."""
    found = {}
    for line in text.splitlines()[1:]:
        match = re.match(r"(.+?)\s{2,}(unlimited|\d+)\s+(unlimited|\d+)", line)
        if match:
            soft, hard = (None if part == "unlimited" else int(part) for part in match.groups()[1:])
            found[match[1]] = (soft, hard)
    return found


# -- processes ----------------------------------------------------------------------------------


def parse_io(text: str) -> int:
    """read_bytes of /proc/PID/io: what really came from a disk, not from the page cache."""
    match = re.search(r"^read_bytes:\s*(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def parse_stat(text: str) -> Dict[str, Any]:
    """/proc/PID/stat → comm, state, ticks (user + system), started (ticks since boot), rss_pages.

    comm stands in brackets and may itself hold brackets and spaces ("(sglang::schedul)").
    ValueError if the text is cut off.
    """
    opening, closing = text.find("("), text.rfind(")")
    rest = text[closing + 1 :].split()
    if opening < 0 or closing < opening or len(rest) < 22:
        raise ValueError("not a /proc/PID/stat")
    return {
        "comm": text[opening + 1 : closing],
        "state": rest[0],
        "ticks": int(rest[11]) + int(rest[12]),
        "started": int(rest[19]),
        "rss_pages": int(rest[21]),
    }


def parse_status(text: str) -> Dict[str, Any]:
    """/proc/PID/status → name, uid (effective), rss, shared (part of rss), swap; bytes."""

    def number(name: str) -> int:
        match = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
        return int(match[1]) * KiB if match else 0

    name = re.search(r"^Name:\s*(.*)$", text, re.MULTILINE)
    uid = re.search(r"^Uid:\s*\d+\s+(\d+)", text, re.MULTILINE)
    return {
        "name": name[1] if name else "",
        "uid": int(uid[1]) if uid else -1,
        "rss": number("VmRSS"),
        "shared": number("RssShmem"),
        "swap": number("VmSwap"),
    }


# -- GPUs ---------------------------------------------------------------------------------------

BUS = re.compile(r"[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.\d", re.I)
# "GPU0000:41:00.0" of older drivers, "GPU4: 0000:41:00.0" of newer ones.
_LOST = re.compile(
    r"Unable to determine the device handle for GPU\s?(?:(\d{1,3})(?::\s?|\s))?"
    rf"({BUS.pattern})?",
    re.I,
)
# A card that cannot be split says so too; one that says nothing may be split.
_UNSPLIT = re.compile(r"Disabled|\[?(?:N/A|Not Supported)\]?", re.I)
_ECC = re.compile(r"\d+|N/A|Off")
_BROKEN = re.compile(r"ERR!|\[?(?:Unknown Error|GPU is lost|Not Found|GPU requires reset)", re.I)


def parse_gpus(text: str) -> List[Dict[str, Any]]:
    """The answer to GPU_QUERY, one GPU a line.

    `state` is ok, lost, error or mig. Only an ok GPU has its memory figures: a broken GPU prints
    memory as if it were free, and of a MIG card no process can allocate the parent's total.
    """
    gpus: List[Dict[str, Any]] = []
    for line in text.splitlines():
        if _LOST.search(line):
            gpus.append(_lost(line))
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 5 or not cells[0].isdigit():
            continue
        index, name, uuid, total, used = int(cells[0]), cells[1], cells[2], cells[3], cells[4]
        mig = cells[5] if len(cells) >= PLAIN else ""  # else the line was cut off
        state = _state(line, total, used, mig) if name and uuid else "error"
        gpus.append(_gpu(index, name, uuid, total, used, state))
    return _numbered(gpus)


def _lost(line: str) -> Dict[str, Any]:
    """Of the line that nvidia-smi prints in place of a card: index −1 and bus "" if it tells
    none."""
    told = _LOST.search(line)
    assert told is not None
    index, bus = (told[1] or "", told[2] or "")
    return {**_gpu(int(index or -1), "", "", "", "", "lost"), "bus": bus.lower()}


def _numbered(gpus: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """By index, no two cards with one. The others keep their numbers when a card is lost, so a gap
    among them is its own; where that does not tell it, it keeps −1."""
    there = {gpu["index"] for gpu in gpus if gpu["name"]}
    nameless = [gpu for gpu in gpus if not gpu["name"]]
    for gpu in nameless:
        gpu["index"] = -1 if gpu["index"] in there else gpu["index"]
        there.add(gpu["index"])
    gaps = [index for index in range(max(there, default=-1)) if index not in there]
    open_ = [gpu for gpu in nameless if gpu["index"] < 0]
    if len(gaps) == len(open_):
        for index, gpu in zip(gaps, sorted(open_, key=lambda gpu: str(gpu["bus"]))):
            gpu["index"] = index
    return sorted(gpus, key=lambda gpu: int(gpu["index"]))


def _state(line: str, total: str, used: str, mig: str) -> str:
    if re.search(r"GPU is lost", line, re.I):
        return "lost"
    if mig.lower().startswith("enabled"):
        return "mig"
    whole = _UNSPLIT.fullmatch(mig) and total.isdigit() and used.isdigit()
    return "ok" if whole and not _BROKEN.search(line) else "error"


def _gpu(index: int, name: str, uuid: str, total: str, used: str, state: str) -> Dict[str, Any]:
    figures = state == "ok"
    return {
        "index": index,
        "name": name,
        "uuid": uuid,
        "memory_total": int(total) * MiB if figures else 0,
        "memory_used": int(used) * MiB if figures else 0,
        "state": state,
        "bus": "",
    }


def parse_gpu_table(text: str) -> Dict[str, Any]:
    """The table that `nvidia-smi` prints for people → {"driver", "cuda", "gpus", "error"}.

    Both headers ("CUDA Version", since driver 610 "CUDA UMD Version"). "error" holds NVML's own
    words if there is no table. A GPU whose utilisation alone is ERR! works; one whose name or
    power is ERR! does not. MIG that is pending ("Disabled*", ECC cell "On") counts as mig.
    """
    driver = re.search(r"(?:Driver|KMD) Version: (\S+)", text)
    cuda = re.search(r"CUDA (?:UMD )?Version: (\S+)", text)
    error = re.search(
        r"^(?:Failed to initialize NVML|NVIDIA-SMI has failed).*$", text, re.MULTILINE
    )
    gpus: List[Dict[str, Any]] = []
    blocks: List[List[str]] = []
    for line in text.split("MIG devices:")[0].splitlines():
        if _LOST.search(line):
            gpus.append(_lost(line))
        elif re.match(r"\|\s+\d+\s+\S.*\|.*\|", line):
            blocks.append([line])
        elif blocks:
            blocks[-1].append(line)
    gpus += [gpu for block in blocks for gpu in _table_gpu(block)]
    return {
        "driver": driver[1] if driver else "",
        "cuda": cuda[1] if cuda else "",
        "gpus": _numbered(gpus),
        "error": error[0] if error else "",
    }


def _cells(block: Sequence[str], row: int) -> List[str]:
    return block[row].strip().strip("|").split("|") if len(block) > row else []


def _table_gpu(block: Sequence[str]) -> List[Dict[str, Any]]:
    """The cell of ECC says "On" of a card that is split; drivers before MIG have no third row."""
    head = re.match(r"\s*(\d+)\s+(.*?)(?:\s+(?:On|Off))?\s*$", _cells(block, 0)[0])
    bus = BUS.search("".join(block))
    if head is None or bus is None:
        return []
    ecc, mig = ((_cells(block, row)[2:3] or [""])[0].strip() for row in (0, 2))
    sensors = (_cells(block, 1) or [""])[0]
    memory = re.search(r"(\d+)MiB\s*/\s*(\d+)MiB", block[1]) if sensors else None
    if ecc == "On" or mig.startswith("Enabled") or mig.endswith("*"):
        state = "mig"
    elif memory and _ECC.fullmatch(ecc) and not _BROKEN.search(f"{head[2]} {sensors} {mig}"):
        state = "ok"
    else:
        state = "error"
    used, total = (memory[1], memory[2]) if memory else ("", "")
    card = _gpu(int(head[1]), head[2].strip(), "", total, used, state)
    return [{**card, "bus": bus[0].lower()}]


def parse_gpu_processes(text: str, gpus: Iterable[Dict[str, Any]] = ()) -> List[Dict[str, Any]]:
    """The answer to PROCESS_QUERY → [{"gpu" index or -1, "pid" or 0 if hidden, "memory"}]."""
    index = {gpu["uuid"]: gpu["index"] for gpu in gpus if gpu.get("uuid")}
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 3 or not cells[0].startswith(("GPU-", "MIG-")):
            continue
        pid, memory = (int(cell) if cell.isdigit() else 0 for cell in cells[1:])
        found.append({"gpu": index.get(cells[0], -1), "pid": pid, "memory": memory * MiB})
    return found


# -- readers ------------------------------------------------------------------------------------


def read(path: str) -> str:
    """A file's text, or "" if it is gone: processes end between two looks."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def meminfo() -> Dict[str, int]:
    return parse_meminfo(read("/proc/meminfo"))


def run(argv: Sequence[str], timeout: float = 20.0) -> str:
    """stdout of a command; "" if it is missing or hangs, as nvidia-smi does over a sick GPU.

    A failing nvidia-smi prints its reason on stdout, so the exit code is not asked.
    """
    answer = ask(argv, timeout)
    return str(answer["out"]) if answer["state"] == OK else ""


def gpus() -> List[Dict[str, Any]]:
    return parse_gpus(run(GPU_QUERY))


def gpu_processes(known: Iterable[Dict[str, Any]] = ()) -> List[Dict[str, Any]]:
    return parse_gpu_processes(run(PROCESS_QUERY), known)


# Unified; and where version 1 is still mounted (RHEL 8, some containers), systemd's own hierarchy.
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")


def cgroup_pids(control_group: str) -> List[int]:
    """PIDs of a unit, from systemd's ControlGroup property, with all groups below it."""
    found: List[int] = []
    if not control_group.startswith("/") or ".." in control_group:
        return found
    roots = [root for root in CGROUPS if os.path.isdir(root + control_group)]
    for folder, _, _ in os.walk(f"{roots[0]}{control_group}" if roots else ""):
        found += [int(pid) for pid in read(f"{folder}/cgroup.procs").split() if pid.isdigit()]
    return sorted(found)


def samples(pids: Iterable[int]) -> Dict[int, Tuple[int, int, int]]:
    """Per process (read_bytes, rss, CPU ticks); processes that ended are left out."""
    found = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for pid in pids:
        try:
            stat = parse_stat(read(f"/proc/{pid}/stat"))
        except ValueError:
            continue
        found[pid] = (parse_io(read(f"/proc/{pid}/io")), stat["rss_pages"] * page, stat["ticks"])
    return found


def processes(pids: Iterable[int]) -> List[Dict[str, Any]]:
    """[{"pid", "comm", "rss", "shared"}] for the answer of collect."""
    found = []
    for pid in pids:
        status = parse_status(read(f"/proc/{pid}/status"))
        if status["name"]:
            told = {"pid": pid, "comm": status["name"]}
            found.append({**told, "rss": status["rss"], "shared": status["shared"]})
    return found
