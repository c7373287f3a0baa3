"""Where a folder lies: file system, block device, and whether that turns, is NVMe or far away."""

from __future__ import annotations

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from opsctl.onhost.asking import HUNG, ask
from opsctl.onhost.hostfacts import read

NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "wekafs", "9p",
    "virtiofs", "afs", "orangefs", "pvfs2",
}  # fmt: skip
MEMORY = {"tmpfs", "ramfs", "hugetlbfs"}
SILENCE = 5.0  # seconds; a server that is only slow answers so small a question sooner
REMEMBERED = 60.0  # seconds for which what did not answer is not waited for once more
_silent: Dict[str, float] = {}  # path → until when, monotonic


def of(path: Path) -> Dict[str, Any]:
    """{"filesystem", "source", "device", "kind", "members"} of an existing folder.

    `kind`: nvme, ssd, rotational, virtual, network, memory or unknown. A virtual machine's disk
    says that it turns whatever it is, so it is called virtual.
    """
    filesystem, source = mount_of(read("/proc/self/mountinfo"), os.path.realpath(str(path)))
    names = devices(_number(path), source)
    return {
        "filesystem": filesystem,
        "source": source,
        "device": names[0] if names else "",
        "members": names[1:],
        "kind": kind(filesystem, names),
    }


def silent(paths: Sequence[str]) -> Dict[str, str]:
    """Those of `paths` whose file system does not answer within SILENCE, with its type and source
    where the path itself names its mount. The server of a hard NFS mount that is gone holds
    whoever asks for ever, so that another process asks, which may be left behind. All are asked at
    once, and what was silent a moment ago, or lies below it, is not asked again: several looks of
    one call would wait for it each."""
    asked = [path for path in dict.fromkeys(paths) if not _known(path)]
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        answers = list(pool.map(lambda path: ask(["stat", "-f", path], SILENCE), asked))
    until = time.monotonic() + REMEMBERED
    _silent.update({p: until for p, said in zip(asked, answers) if said["state"] == HUNG})
    mountinfo = read("/proc/self/mountinfo")
    return {path: " ".join(mount_of(mountinfo, path)) for path in paths if _known(path)}


def _known(path: str) -> bool:
    """Whether the path, or a folder above it, has just been silent."""
    now = time.monotonic()
    above = [one for one, until in _silent.items() if until > now]
    return any(path == one or path.startswith(one.rstrip("/") + "/") for one in above)


def told(path: str, mount: str) -> str:
    """What `silent` says of a path, in words."""
    of = f" ({mount})" if mount.strip() else ""
    return f"{path} does not answer within {SILENCE:g} s{of}"


def mount_of(mountinfo: str, path: str) -> Tuple[str, str]:
    """File system type and source of the mount that holds `path`, from /proc/self/mountinfo.
    Of two mounts on one place, the later one is seen."""
    best, found = -1, ("", "")
    for line in mountinfo.splitlines():
        head, dash, tail = line.partition(" - ")
        fields, last = head.split(" "), tail.split(" ")
        if not dash or len(fields) < 5 or len(last) < 2:
            continue
        place = _unescaped(fields[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= best:
            best, found = len(place), (last[0], _unescaped(last[1]))
    return found


def kind(filesystem: str, names: List[str], sys: str = "/sys") -> str:
    """`names`: the device and what it is made of, as in /sys/class/block."""
    if filesystem in NETWORK or filesystem.startswith("fuse."):
        return "network"
    if filesystem in MEMORY:
        return "memory"
    kinds = {_of_disk(name, sys) for name in names[1:] or names}
    for slowest in ("network", "rotational", "virtual", "ssd", "nvme"):
        if slowest in kinds:
            return slowest
    return "unknown"


def _of_disk(name: str, sys: str) -> str:
    if name.startswith("nvme"):
        controller = re.match(r"nvme\d+", name)
        transport = read(f"{sys}/class/nvme/{controller[0] if controller else name}/transport")
        return "network" if transport.strip() in ("tcp", "rdma", "fc") else "nvme"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    if name.startswith(("rbd", "nbd")):
        return "network"
    turns = read(f"{sys}/class/block/{name}/queue/rotational").strip()
    return {"0": "ssd", "1": "rotational"}.get(turns, "unknown")


def devices(number: Optional[Tuple[int, int]], source: str, sys: str = "/sys") -> List[str]:
    """The whole disk that holds the file system, first; then, of a volume or an array, its disks.

    Some file systems (btrfs, zfs, overlay) have a device number of their own: then by source.
    """
    name = ""
    if number is not None:
        link = f"{sys}/dev/block/{number[0]}:{number[1]}"
        name = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else ""
    if not name and source.startswith("/dev/"):
        real = os.path.basename(os.path.realpath(source))
        name = real if os.path.exists(f"{sys}/class/block/{real}") else ""
    if not name:
        return []
    whole = _whole(name, sys)
    return [whole, *_below(whole, sys, 4)]


def _whole(name: str, sys: str) -> str:
    """The disk of a partition."""
    path = os.path.realpath(f"{sys}/class/block/{name}")
    parted = os.path.exists(f"{path}/partition")
    return os.path.basename(os.path.dirname(path)) if parted else name


def _below(name: str, sys: str, depth: int) -> List[str]:
    folder = f"{sys}/class/block/{name}/slaves"
    found: List[str] = []
    for slave in sorted(os.listdir(folder)) if depth and os.path.isdir(folder) else []:
        whole = _whole(slave, sys)
        found += [d for d in (_below(whole, sys, depth - 1) or [whole]) if d not in found]
    return found


def _number(path: Path) -> Optional[Tuple[int, int]]:
    try:
        number = path.stat().st_dev
    except OSError:
        return None
    return os.major(number), os.minor(number)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
