"""The stand-in machine of a rehearsal host: a root service that owns /proc/meminfo and the GPUs.

Engine processes tell it over a socket what they hold; when a connection ends, its holding is
given back. It rewrites one file in place (bound over /proc/meminfo: a rename would have no effect)
and one that the stand-in nvidia-smi reads. Run as `python3 -m opsctl.rehearsal.machine`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.rehearsal.holdings import SOCKET
from opsctl.rehearsal.scenario import installed

RUN = Path(SOCKET).parent
MEMINFO = RUN / "meminfo"
GPUS = RUN / "gpus.json"
PROC = Path("/proc/meminfo")


@dataclass(frozen=True)
class Held:
    """What one process holds. `gpu` is None for a process without one.

    `at_most_kb`: a stranger took memory meanwhile, so that no more than this is available.
    """

    pid: int
    gpu: int | None
    gpu_mib: int
    host_kb: int
    at_most_kb: int = 1 << 62


def meminfo(machine: Mapping[str, Any], held: Iterable[Held]) -> str:
    """The text of /proc/meminfo."""
    held = list(held)
    total, idle = int(machine["mem_total_kb"]), int(machine["mem_available_kb"])
    left = idle - sum(h.host_kb for h in held)
    available = max(0, min(left, *(h.at_most_kb for h in held))) if held else idle
    used = idle - available
    cache = min(int(machine["page_cache_kb"]), available)
    rows = {
        "MemTotal": total,
        "MemFree": available - cache,
        "MemAvailable": available,
        "Buffers": 0,
        "Cached": cache,
        "SwapCached": 0,
        "Active": cache // 2,
        "Inactive": cache - cache // 2,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 0,
        "AnonPages": used,
        "Mapped": 0,
        "Shmem": 0,
        "SReclaimable": 0,
        "Committed_AS": used,
        "Hugetlb": 0,
    }
    text = "".join(f"{name + ':':<16}{kb:>8} kB\n" for name, kb in rows.items())
    return text + "".join(f"{'HugePages_' + n + ':':<16}{0:>8}\n" for n in ("Total", "Free"))


def gpus(machine: Mapping[str, Any], held: Iterable[Held]) -> dict[str, Any]:
    """What the stand-in nvidia-smi shows."""
    holders = [h for h in held if h.gpu is not None and h.gpu_mib]
    return {
        "name": machine["gpu_name"],
        "driver": machine["driver"],
        "cuda": machine["cuda"],
        "compute_capability": machine["compute_capability"],
        "gpus": [
            {
                "index": index,
                "total_mib": int(machine["gpu_memory_mib"]),
                "used_mib": sum(h.gpu_mib for h in holders if h.gpu == index),
                "processes": [{"pid": h.pid, "mib": h.gpu_mib} for h in holders if h.gpu == index],
            }
            for index in range(int(machine["gpus"]))
        ],
    }


class Machine:
    """Holds the table of holdings and writes the two files whenever it changes."""

    def __init__(self, machine: Mapping[str, Any]) -> None:
        self._machine = machine
        self._held: dict[object, Held] = {}

    def write(self) -> None:
        held = list(self._held.values())
        _rewrite(MEMINFO, meminfo(self._machine, held))
        _rewrite(GPUS, json.dumps(gpus(self._machine, held)) + "\n")

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = _peer(writer)
        key = object()
        try:
            while line := await reader.readline():
                self._held[key] = Held(pid, **json.loads(line))
                self.write()
        except (ValueError, TypeError, ConnectionError):
            pass  # a process that speaks nonsense holds nothing
        finally:
            self._held.pop(key, None)
            self.write()
            writer.close()


def _peer(writer: asyncio.StreamWriter) -> int:
    sock = writer.get_extra_info("socket")
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def _rewrite(path: Path, text: str) -> None:
    """In place and in one write: a reader sees one text or the other."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        data = text.encode()
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def bind() -> None:
    """Put our meminfo over the kernel's. Raises CalledProcessError where mounts are forbidden."""
    mounted = any(
        line.split()[4] == str(PROC)
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )
    if not mounted:
        subprocess.run(["mount", "--bind", str(MEMINFO), str(PROC)], check=True)


def ready() -> None:
    """Tell systemd (Type=notify) that /proc/meminfo is ours from here on."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link, contextlib.suppress(OSError):
        link.sendto(b"READY=1", address.replace("@", "\0", 1))


async def serve() -> None:
    machine = Machine(installed().machine)
    RUN.mkdir(mode=0o755, exist_ok=True)
    machine.write()
    bind()
    Path(SOCKET).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(machine.client, SOCKET)
    Path(SOCKET).chmod(0o666)
    ready()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
