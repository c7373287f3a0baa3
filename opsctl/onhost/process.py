"""What the kernel tells of one process, and which SGLang it runs. Nothing of it is run for that.

Arguments and variables may hold keys: they leave the host through the connection only, and are
never written anywhere here.
"""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost.hostfacts import parse_limits, parse_stat, parse_status, read

PROC = Path("/proc")
_DIST = re.compile(r"sglang-([0-9][^-]*)\.dist-info")
_PACKAGES = ("lib/python3*", "lib64/python3*", "local/lib/python3*", "lib")
_LIMITS = {"nofile": "Max open files", "memlock": "Max locked memory", "core": "Max core file size"}


def of(pid: int) -> Optional[Dict[str, Any]]:
    """None if there is no such process (any more). `started`: seconds since the epoch; `limits`:
    soft limits, -1 for none; `folders`, `engine`: see there."""
    try:
        stat = parse_stat(read(str(PROC / f"{pid}/stat")))
        argv = _words(pid, "cmdline")
        environ = dict(_pairs(_words(pid, "environ")))
    except (OSError, ValueError):
        return None
    status = parse_status(read(str(PROC / f"{pid}/status")))
    cwd, exe = _link(pid, "cwd"), _link(pid, "exe")
    return {
        "pid": pid,
        "argv": argv,
        "environ": environ,
        "cwd": cwd,
        "exe": exe,
        "user": _user(status["uid"]),
        "started": _started(stat["started"]),
        "cgroup": _cgroup(pid),
        "limits": _limits(pid),
        "folders": folders(PROC / f"{pid}/root", cwd, argv),
        "engine": engine(PROC / f"{pid}/root", programs(argv, environ, cwd, exe), environ),
    }


def sealed(value: Any) -> str:
    """A value as text that arrives as it was left: what hosts say is else made harmless for
    terminals on the way, and cut."""
    return base64.encodebytes(json.dumps(value).encode()).decode("ascii")


def _words(pid: int, name: str) -> List[str]:
    raw = (PROC / f"{pid}/{name}").read_bytes()
    return [word.decode("utf-8", "replace") for word in raw.split(b"\0")[:-1]]


def _pairs(words: List[str]) -> List[Tuple[str, str]]:
    return [(name, value) for name, sign, value in (w.partition("=") for w in words) if sign]


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink(str(PROC / f"{pid}/{name}"))
    except OSError:
        return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _started(ticks: int) -> float:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return round(time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK"), 1)


def _cgroup(pid: int) -> str:
    """Of systemd's own hierarchy: the one line of version 2, or name=systemd of version 1."""
    found = re.findall(r"^(?:0:|\d+:name=systemd):(/.*)$", read(str(PROC / f"{pid}/cgroup")), re.M)
    return str(found[-1]) if found else ""


def _limits(pid: int) -> Dict[str, int]:
    told = parse_limits(read(str(PROC / f"{pid}/limits")))
    soft = {name: told[long][0] for name, long in _LIMITS.items() if long in told}
    return {name: -1 if value is None else value for name, value in soft.items()}


def folders(top: Path, cwd: str, argv: List[str]) -> List[str]:
    """Values among the arguments that are folders from where the process works, as seen from its
    own root `top`: a path, which reads like a name of a hub."""
    values = [word.partition("=")[2] if word.startswith("--") else word for word in argv[1:]]
    near = [v for v in values if re.fullmatch(r"\w[\w.@-]*(/\w[\w.@-]*)*/?", v) and cwd]
    return sorted({v for v in near if os.path.isdir(os.path.join(f"{top}{cwd}", v))})


def programs(argv: List[str], environ: Mapping[str, str], cwd: str, exe: str) -> List[str]:
    """Paths by which its Python may have been found, the likeliest first. `exe` is behind all links
    of a virtual environment, so it comes last."""
    found: List[str] = []
    if argv and "/" in argv[0]:
        found.append(os.path.normpath(os.path.join(cwd or "/", argv[0])))
    elif argv:
        found += [os.path.join(folder, argv[0]) for folder in environ.get("PATH", "").split(":")]
    return [*found, *([exe] if exe else [])]


def engine(top: Path, programs: List[str], environ: Mapping[str, str]) -> Dict[str, Any]:
    """{"root", "version", "installed"}: the environment that has SGLang, by its metadata, as seen
    from the process's own root `top`. `installed`: when that was written, seconds since the epoch:
    later than the process's start means that it runs something else. All None if not found."""
    roots = [str(Path(program).parent.parent) for program in programs]
    last = [root for root in (environ.get("VIRTUAL_ENV"), "/usr/local", "/usr") if root]
    for root in dict.fromkeys([*roots, *last]):
        for folder in _PACKAGES:
            for kind in ("site-packages", "dist-packages"):
                found = _metadata(top, f"{root}/{folder}/{kind}".lstrip("/"))
                if found is not None:
                    return {"root": root, "version": found[0], "installed": found[1]}
    return {"root": None, "version": None, "installed": None}


def _metadata(top: Path, pattern: str) -> Optional[Tuple[str, float]]:
    try:
        for path in sorted(top.glob(f"{pattern}/sglang-*.dist-info")):
            match = _DIST.fullmatch(path.name)
            if match:
                return match[1], path.stat().st_ctime
    except OSError:
        pass
    return None
