"""Where a fetched model stands, and what its stamp says. Reads only.

PATH is a link into `.fetched/` beside it, put in place by one rename when every file is there and
right; so a reader sees a whole model or none, and another revision lands beside the present one:

    /srv/models/Kimi                          -> .fetched/Kimi-0123456789ab
    /srv/models/.fetched/Kimi-0123456789ab/   the files, and the stamp
    /srv/models/.fetched/Kimi-ba9876543210.part/   another revision, on its way
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List

from opsctl.onhost.files import read_json

STAMP = ".opsctl-model.json"
STATE = ".opsctl-fetch"  # partial files and records, in the .part folder
# What a content is known by: another mirror, limit or token is the same model.
_IDENTITY = ("hub", "revision", "url", "s3", "rsync", "peer", "folder", "manifest_sha256")


def identity(source: Dict[str, Any]) -> str:
    """12 hex digits that change with what is asked for; files left out are part of that."""
    told = {key: source.get(key) for key in _IDENTITY if source.get(key)}
    if source.get("hub"):
        told = {"hub": source["hub"], "revision": source["revision"]}
    if source.get("peer"):
        told.pop("rsync", None)  # only its address now
    told["exclude"] = sorted(source.get("exclude") or ())
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def home(path: str) -> Path:
    """The folder that holds every revision of the models beside `path`."""
    return Path(path).parent / ".fetched"


def part(path: str, source: Dict[str, Any]) -> Path:
    return home(path) / f"{Path(path).name}-{identity(source)}.part"


def unit_of(path: str) -> str:
    """One fetch a path at a time: the unit's name is the first that excludes another."""
    return f"opsctl-fetch-{hashlib.sha256(path.encode()).hexdigest()[:12]}.service"


def stamp(path: str) -> Dict[str, Any]:
    """{} if nothing that was fetched stands there."""
    return read_json(Path(path) / STAMP) or {}


def damaged(path: str) -> List[str]:
    """Files of the stamp that are gone or of another size: a look, nothing is hashed."""
    wrong = []
    for name, file in stamp(path).get("files", {}).items():
        try:
            same = os.stat(os.path.join(path, name)).st_size == file["size"]
        except OSError:
            same = False
        if not same:
            wrong.append(name)
    return sorted(wrong)


def revisions(path: str) -> List[Path]:
    """Every finished folder of this model, the present one among them."""
    form = re.compile(re.escape(Path(path).name) + r"-[0-9a-f]{12}(\.\d+)?")
    folder = home(path)
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if form.fullmatch(p.name) and p.is_dir())


def parts(path: str) -> List[Path]:
    """Every revision of this model that is, or once was, on its way."""
    form = re.compile(re.escape(Path(path).name) + r"-[0-9a-f]{12}\.part")
    folder = home(path)
    return sorted(p for p in folder.iterdir() if form.fullmatch(p.name)) if folder.is_dir() else []


def serving(path: str) -> List[int]:
    """Processes that name this very path in their command: an engine that runs from it."""
    found = []
    name = os.fsencode(path)
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                if any(word == name or word.endswith(b"=" + name) for word in words):
                    found.append(int(entry))
    return found


def users(folder: Path) -> List[str]:
    """What still uses a revision: the link of a model, a release, a process. [] if nothing."""
    real = os.path.realpath(str(folder))
    found = [
        f"link {link}"
        for link in sorted(folder.parent.parent.iterdir())
        if link.is_symlink() and os.path.realpath(str(link)) == real
    ]
    return found + _releases(real) + _processes(real)


def _releases(real: str) -> List[str]:
    found = []
    for file in sorted(Path("/etc/opsctl").glob("*/releases/*/release.json")):
        model = (read_json(file) or {}).get("model") or {}
        paths = [p for p in (model.get("path"), model.get("draft_path")) if p]
        if any(_within(os.path.realpath(p), real) for p in paths):
            found.append(f"release {file.parent}")
    return found


def _processes(real: str) -> List[str]:
    """Processes that have a file of it open or mapped, or name it in their command."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            maps = Path("/proc", entry, "maps").read_bytes()
            opened = [_target(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
            name = os.fsencode(real)
            if name in words or name + b"/" in maps or any(_within(o, real) for o in opened):
                found.append(f"process {entry}")
    return found


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
