"""May a user reach and read what a unit names? Modes are looked at, since root, who asks, may
read everything."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

ACCESS_LIST = "system.posix_acl_access"
READ, PASS = 4, 1  # bits of a mode: of a file that is read; of a folder, or of a program
MOST_LINKS = 40  # as the kernel follows them


def way(path: str) -> List[Path]:
    """The folders that the kernel passes on its way to `path`, links followed, and its end."""
    at, passed, links = Path("/"), [Path("/")], 0
    parts = list(reversed(Path(path).parts[1:]))
    while parts:
        part = parts.pop()
        step = at.parent if part == ".." else at / part
        if step.is_symlink() and links < MOST_LINKS:
            links += 1
            target = Path(os.readlink(str(step)))
            at = Path("/") if target.is_absolute() else at
            parts += [one for one in reversed(target.parts) if one != "/"]
            continue
        at = step
        passed.append(at)
    return passed


def modes(files: Iterable[str], programs: Iterable[str] = ()) -> List[Dict[str, Any]]:
    """{"path", "mode", "uid", "gid", "wanted"} of each of them and of the folders down to it, each
    once; `wanted`: the bit that its user needs."""
    wanted: Dict[Path, int] = {}
    for paths, bit in ((files, READ), (programs, PASS)):
        for path in paths:
            for step in way(path):
                wanted.setdefault(step, bit)
    return [entry for step, bit in wanted.items() for entry in _mode(step, bit)]


def _mode(path: Path, wanted: int) -> List[Dict[str, Any]]:
    """Empty where nothing is, and where an access list may open what the mode does not."""
    try:
        found = path.stat()
    except OSError:
        return []
    bit = PASS if stat.S_ISDIR(found.st_mode) else wanted
    with suppress(OSError):  # file systems without attributes
        if not found.st_mode & bit and ACCESS_LIST in os.listxattr(str(path)):
            return []
    mode = stat.S_IMODE(found.st_mode)
    return [{"path": str(path), "mode": mode, "uid": found.st_uid, "gid": found.st_gid,
             "wanted": bit}]  # fmt: skip


def shut(access: Iterable[Mapping[str, Any]], user: Optional[Mapping[str, Any]]) -> List[str]:
    """What keeps the user out: folders must let pass, files must be readable, programs run."""
    if user is None or user["uid"] == 0:
        return []
    found = []
    for step in access:
        shift = 6 if step["uid"] == user["uid"] else 3 if step["gid"] in user["gids"] else 0
        if not step["mode"] >> shift & step["wanted"]:
            found.append(str(step["path"]))
    return found


def told(paths: List[str]) -> str:
    """The first, and how many more; "" if none is shut."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return paths[0] + more if paths else ""


def opened(paths: List[str], root: str) -> str:
    """What "chmod a+rX" goes on with, to open each folder on the way to `root`, and all below it
    where something there is shut."""
    own = [path for path in paths if path == root or path.startswith(f"{root}/")]
    away = " ".join(path for path in paths if path not in own)
    return "; chmod a+rX ".join(([away] if away else []) + ([f"-R {root}"] if own else []))
