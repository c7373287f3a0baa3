"""`doctor` on the journal, whether it is kept on disk, and on the clock, whether it is kept right.

Both are read so that nothing is started for it: `timedatectl` would start systemd-timedated, which
makes folders of its own in /tmp and /var/tmp.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from opsctl.onhost import hostfacts
from opsctl.onhost.doctor.fault import WARN, Fault, Found, table

# Of systemd's folders the first wins, for the file itself as for a drop-in of one name.
FOLDERS = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd", "lib/systemd")
STORAGE = ("auto", "volatile", "persistent", "none")
UNSYNCHRONISED = 16_000_000  # µs; the kernel's largest error: nothing has set the clock lately

FAULTS = table(
    Fault("clock-free", "clock", WARN, "a clock that nothing keeps right",
          "journals and audits of several hosts cannot be compared",
          "systemctl unmask systemd-timesyncd && systemctl enable --now systemd-timesyncd "
          "(or install chrony)"),
    Fault("journal-volatile", "journal", WARN, "a journal that a reboot empties",
          "what an engine said before a crash of the host is lost",
          "mkdir -p /var/log/journal && systemctl restart systemd-journald && journalctl --flush"),
    Fault("journal-storage", "journal", WARN, "a journal that is told not to be kept",
          "Storage= of journald says so: what an engine said before a crash of the host is lost",
          "mkdir -p /etc/systemd/journald.conf.d && printf '[Journal]\\nStorage=persistent\\n' > "
          "/etc/systemd/journald.conf.d/{dropin} && systemctl restart systemd-journald && "
          "journalctl --flush (or take Storage= out of {file})"),
)  # fmt: skip


def judge(seen: Mapping[str, Any], found: Found) -> None:
    keepers = [name for name, unit in seen["units"].items() if unit["active"] == "active"
               and name.startswith(("systemd-timesyncd", "chron", "ntp"))]  # fmt: skip
    if seen["synchronised"] is None:
        found.unknown("clock", "the kernel does not tell whether it is kept", mend="timedatectl")
    elif not seen["synchronised"] and not keepers:
        found.fault("clock-free", "not synchronised, and no service that would do it runs")
    elif not seen["synchronised"]:
        found.fault("clock-free", f"{keepers[0]} runs, and has not reached a time server yet")
    found.passed("clock", "synchronised")
    journal = seen["journal"]
    if journal["storage"] in ("volatile", "none"):
        where = "not kept at all" if journal["storage"] == "none" else "kept in memory only"
        text = f"Storage={journal['storage']} in {journal['file']}: the journal is {where}"
        found.fault("journal-storage", text, file=journal["file"], dropin=_after(journal["file"]))
    elif journal["storage"] == "auto" and not journal["folder"]:
        found.fault("journal-volatile", "the journal is kept in memory (/run/log/journal) only")
    found.passed("journal", "kept on disk")


def _after(file: str) -> str:
    """The name of a drop-in that is read after this one, and so has the last word."""
    dropin = re.fullmatch(r".*\.d/(.*\.)conf", file)
    return f"{dropin[1] if dropin else ''}persistent.conf"


def journal(root: Path) -> Dict[str, Any]:
    """{"storage", "file", "folder"}: Storage= of journald and the file that sets it ("" if none),
    and whether the folder is there without which "auto" keeps nothing."""
    storage, file = _storage(root)
    machine = hostfacts.read(str(root / "etc/machine-id")).strip()
    return {
        "storage": storage,
        "file": file,
        "folder": bool(machine) and (root / "var/log/journal" / machine).is_dir(),
    }


def _storage(root: Path) -> Tuple[str, str]:
    """Drop-ins count after the file, all in the order of their names; the last word counts."""
    value, source = "auto", ""
    for path in _files(root, "journald"):
        for told in _assigned(hostfacts.read(str(path)), "Journal", "Storage"):
            if told in STORAGE:  # journald leaves other words aside
                value, source = told, f"/{path.relative_to(root)}"
    return value, source


def _files(root: Path, name: str) -> List[Path]:
    folders = [root / folder for folder in FOLDERS]
    whole = next((f for f in (folder / f"{name}.conf" for folder in folders) if f.exists()), None)
    dropins: Dict[str, Path] = {}
    for folder in folders:
        for path in (folder / f"{name}.conf.d").glob("*.conf"):
            dropins.setdefault(path.name, path)
    return [*([whole] if whole else []), *(dropins[key] for key in sorted(dropins))]


def _assigned(text: str, section: str, key: str) -> List[str]:
    """Values of a key in a section, in their order."""
    found, at = [], ""
    for line in text.splitlines():
        head = re.fullmatch(r"\s*\[(.*)\]\s*", line)
        at = head[1] if head else at
        word = re.fullmatch(rf"\s*{key}\s*=\s*(.*?)\s*", line)
        if word and at == section:
            found.append(word[1])
    return found


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long), ("esterror", ctypes.c_long), ("status", ctypes.c_int),
        ("room", ctypes.c_char * 512),
    )  # fmt: skip


def synchronised(library: Any = None) -> Optional[bool]:
    """As the kernel has it, which is what timedatectl tells; None where it may not be asked."""
    told = _Timex()  # modes 0: nothing is set
    try:
        asked = (library or ctypes.CDLL(None)).adjtimex(ctypes.byref(told))
    except (OSError, AttributeError):
        return None
    return bool(told.maxerror < UNSYNCHRONISED) if asked >= 0 else None
