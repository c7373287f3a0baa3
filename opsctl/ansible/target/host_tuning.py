"""The role `host_tuning`: settings of the kernel and of logins, each only if it is asked for.

What stood there before is kept in STATE when a setting is first made, and put back when the
setting goes away. All that persists is in files of our own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.onhost.files import read, read_json, remove, write_json

SYSCTL = "/etc/sysctl.d/90-opsctl.conf"
LIMITS = "/etc/security/limits.d/91-opsctl-tuning.conf"
TMPFILES = "/etc/tmpfiles.d/opsctl-tuning.conf"
SHM_UNIT = "opsctl-shm.service"
STATE = "/var/lib/opsctl/host_tuning.json"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
SHM = "/dev/shm"
_HEAD = "# Written by the role host_tuning; a setting that is no longer described goes away.\n"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: settings {memlock, nofile, huge_pages, swappiness, transparent_huge_pages,
    numa_balancing, shm_size, sysctl {}} (null or "" asks for nothing), check."""
    host, settings = Host(check=args["check"]), args["settings"]
    before: Dict[str, str] = dict(read_json(Path(STATE)) or {})
    kept, problems = dict(before), []
    try:
        _converge(host, settings, kept)
    except Refused as problem:
        problems = [str(problem)]
    if kept != before and not host.check:  # also of what came to its end before a refusal
        os.makedirs(os.path.dirname(STATE), exist_ok=True)
        write_json(Path(STATE), kept)
    return {**host.result(), "problems": problems}


_OWN = {
    "huge_pages": "vm.nr_hugepages",
    "swappiness": "vm.swappiness",
    "numa_balancing": "kernel.numa_balancing",
}


def contradiction(settings: Mapping[str, Any]) -> str:
    """What of the settings says the same twice, or cannot be together; "" if nothing does."""
    more = {str(k).replace("/", "."): v for k, v in (settings.get("sysctl") or {}).items()}
    for name, key in _OWN.items():
        if key in more and settings.get(name) not in (None, ""):
            return f"host_tuning_sysctl sets {key}, which a variable of its own sets too"
    return _too_many_files(settings.get("nofile"), more.get("fs.nr_open"))


def _converge(host: Host, settings: Mapping[str, Any], kept: Dict[str, str]) -> None:
    clash = contradiction(settings)
    if clash:
        raise Refused(clash)
    keys = sysctls(settings)
    _refuse_too_much(settings)
    _refuse_open_files(settings.get("nofile"), keys.get("fs.nr_open"))
    for key in keys:
        if not os.path.isfile(_path(key)):
            raise Refused(f"the kernel has no setting {key} ({_path(key)} is no file)")
    _file(host, SYSCTL, sysctl_text(keys))
    _file(host, LIMITS, limits_text(settings.get("memlock"), settings.get("nofile")))
    thp = settings.get("transparent_huge_pages") or ""
    _file(host, TMPFILES, f"{_HEAD}w {THP} - - - - {thp}\n" if thp else "")
    wanted = {**keys, **({THP: thp} if thp else {})}
    for key in [*wanted, *(k for k in list(kept) if k not in wanted and k != SHM)]:
        _live(host, key, wanted.get(key), kept)
    _shm(host, str(settings.get("shm_size") or ""), kept)


def sysctls(settings: Mapping[str, Any]) -> Dict[str, str]:
    """All of the settings that are one of the kernel's, as text."""
    named = {key: settings.get(name) for name, key in _OWN.items()}
    found = {key: str(_whole(key, value)) for key, value in named.items() if value is not None}
    for key, value in (settings.get("sysctl") or {}).items():
        found[str(key).replace("/", ".")] = " ".join(str(value).split())
    return found


def _whole(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise Refused(f"{key} takes a whole number: {value!r} is none") from None


def sysctl_text(keys: Mapping[str, str]) -> str:
    return _HEAD + "".join(f"{k} = {v}\n" for k, v in sorted(keys.items())) if keys else ""


def limits_text(memlock: Any, nofile: Any) -> str:
    """For logins; units carry limits of their own. `*` does not mean root."""
    items = [(name, value) for name, value in (("memlock", memlock), ("nofile", nofile)) if value]
    lines = [f"{who} - {name} {value}\n" for name, value in items for who in ("*", "root")]
    return _HEAD + "".join(lines) if lines else ""


def size_of(text: str) -> int:
    """Bytes of "64GiB", "64G" (both 2^30) or a plain number. Raises Refused."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:iB)?", text.strip())
    if not found:
        raise Refused(f"host_tuning_shm_size {text!r}: write it like 64GiB")
    return int(found.group(1)) * _UNITS[found.group(2)]


def selected(text: str) -> str:
    """The word in brackets of "always [madvise] never", else all of it."""
    found = re.search(r"\[(\w+)\]", text)
    return found.group(1) if found else " ".join(text.split())


def shm_unit(size: int) -> str:
    """/dev/shm is mounted by systemd itself before any unit, so it is mounted anew."""
    return (
        f"{_HEAD}[Unit]\nDescription=Size of /dev/shm, by opsctl\nDefaultDependencies=no\n"
        "After=systemd-remount-fs.service\nBefore=sysinit.target\n"
        f"[Service]\nType=oneshot\nExecStart=/bin/mount -o remount,size={size} {SHM}\n"
        "[Install]\nWantedBy=sysinit.target\n"
    )


def _path(key: str) -> str:
    return key if key.startswith("/") else "/proc/sys/" + key.replace(".", "/")


def _live(host: Host, key: str, wanted: Optional[str], kept: Dict[str, str]) -> None:
    """Apply now; without `wanted`, put back what stood there before the role's first touch."""
    path = _path(key)
    now = selected((read(Path(path)) or b"").decode("utf-8", "replace"))
    value = kept.pop(key) if wanted is None else wanted
    if wanted is not None:
        kept.setdefault(key, now)
    if now == value or not host.changed(key, f"{now}\n", f"{value}\n"):
        return
    try:
        Path(path).write_text(value + "\n", encoding="ascii")
    except OSError as error:
        raise Refused(f"{key} cannot be set to {value} now: {error}") from None
    after = selected(Path(path).read_text(encoding="ascii"))
    if after != value:
        hint = (
            "; memory is in pieces: it will be set at the next boot" if "hugepages" in key else ""
        )
        raise Refused(f"{key}: {value} was asked for, the kernel took {after}{hint}")


def _shm(host: Host, text: str, kept: Dict[str, str]) -> None:
    unit = f"/etc/systemd/system/{SHM_UNIT}"
    now = _shm_size()
    if text:
        size = size_of(text)
        kept.setdefault(SHM, str(now))
        if _file(host, unit, shm_unit(size)) and not host.check:
            run(["systemctl", "daemon-reload"])
            run(["systemctl", "enable", SHM_UNIT])
    elif SHM in kept:
        size = int(kept.pop(SHM))
        if os.path.exists(unit) and not host.check:
            run(["systemctl", "disable", SHM_UNIT])
        _file(host, unit, "")
    else:
        return
    page = os.sysconf("SC_PAGE_SIZE")
    if -(-size // page) != now // page and host.changed(SHM, f"{now} bytes\n", f"{size} bytes\n"):
        run(["mount", "-o", f"remount,size={size}", SHM])


def _shm_size() -> int:
    found = os.statvfs(SHM)
    return found.f_blocks * found.f_frsize


def _refuse_too_much(settings: Mapping[str, Any]) -> None:
    """More than there is would leave the host without memory, or is a slip of a unit."""
    meminfo = (read(Path("/proc/meminfo")) or b"").decode("ascii", "replace")
    sizes = {k: int(v) << 10 for k, v in re.findall(r"^(\w+): +(\d+) kB", meminfo, re.MULTILINE)}
    total = sizes.get("MemTotal", 0)
    asked = {
        "host_tuning_huge_pages": int(settings.get("huge_pages") or 0)
        * sizes.get("Hugepagesize", 0),
        "host_tuning_shm_size": size_of(str(settings.get("shm_size") or "0")),
    }
    for name, size in asked.items():
        if size > total:
            raise Refused(
                f"{name} asks for {size >> 30} GiB, the host has {total >> 30} GiB of RAM"
            )


def _refuse_open_files(nofile: Any, coming: Optional[str]) -> None:
    """Above fs.nr_open pam cannot set the limit: nobody could log in any more."""
    kernel = (read(Path("/proc/sys/fs/nr_open")) or b"0").decode()
    many = _too_many_files(nofile, coming or kernel)
    if many:
        raise Refused(many)


def _too_many_files(nofile: Any, allowed: Any) -> str:
    if nofile in (None, "") or allowed in (None, ""):
        return ""
    most = _whole("fs.nr_open", allowed)
    if not most or _whole("host_tuning_nofile", nofile) <= most:
        return ""
    return (
        f"host_tuning_nofile asks for {nofile} open files, the kernel allows {most} a process "
        "(fs.nr_open): set fs.nr_open in host_tuning_sysctl as well, or ask for fewer"
    )


def _file(host: Host, path: str, content: str) -> bool:
    """A file of ours with this content; "" takes it away. True if that was a change."""
    if content:
        return host.file(path, content)
    have = read(Path(path))
    if have is None:
        return False
    if host.changed(path, have.decode("utf-8", "replace"), ""):
        remove(Path(path))
    return True
