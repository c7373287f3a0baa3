"""Who listens on this host, and whom a server that comes to an address would meet there."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Set

from opsctl.onhost.hostfacts import read

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class Place(NamedTuple):
    """Where a socket listens. `address`: as ip_address() writes it."""

    address: str
    port: int


def listening(table: str) -> Dict[str, Place]:
    """By inode, the sockets that listen, from the text of /proc/net/tcp or tcp6."""
    found = {}
    for line in table.splitlines()[1:]:
        part = line.split()
        if len(part) > 9 and part[3] == "0A":  # LISTEN; local address as HEX:PORT
            address, port = part[1].rsplit(":", 1)
            found[part[9]] = Place(_address(address), int(port, 16))
    return found


def _address(written: str) -> str:
    """The kernel writes words of four bytes, each in the byte order of the machine."""
    words = [bytes.fromhex(written[at : at + 8])[::-1] for at in range(0, len(written), 8)]
    address = ip_address(b"".join(words))
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def meets(host: str, place: Place) -> bool:
    """Whether a server that binds `host` finds its port taken by this listener. A wildcard meets
    every address; a name may be any. That a listener on :: may leave IPv4 alone is not told."""
    try:
        ours = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return True
    theirs = ip_address(place.address)
    if theirs.is_unspecified:
        return theirs.version == 6 or ours.version == 4
    if ours.is_unspecified:
        return ours.version == 6 or theirs.version == 4
    return ours == theirs


def taken(address: Mapping[str, Any], place: Place) -> bool:
    """Whether a server at `address` (a release's: {"host", "port"}) meets this listener."""
    host = str(address.get("host") or "0.0.0.0")
    return place.port == address.get("port") and meets(host, place)


def of_host() -> Dict[str, Place]:
    """All of them, by inode."""
    return {inode: at for table in TABLES for inode, at in listening(read(table)).items()}


def owner(inode: str, proc: Path = Path("/proc")) -> str:
    """PID of the process that holds the socket. What ends meanwhile is passed over: a process, and
    one of the many connections of a server that is at work, which must not hide the rest."""
    return next((p.name for p in proc.glob("[0-9]*") if inode in sockets(p)), "")


def sockets(process: Path) -> Set[str]:
    """Inodes of the sockets that a process (its folder in /proc) has open."""
    found = set()
    with suppress(OSError):
        for entry in os.scandir(str(process / "fd")):
            with suppress(OSError):
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry.path))
                found |= {match[1]} if match else set()
    return found
