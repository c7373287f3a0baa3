"""The environments that the role `engine` has built: where they are, and which of them are whole.

A stamp tells what was built, not what became of it: files vanish with a cleaner, a package is
changed by hand, the Python below goes with an upgrade of the system. So a build is looked at
before it counts, by what a start would meet first; nothing of the engine is imported.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from opsctl.ansible.target.converge import Refused, run
from opsctl.onhost.files import read_json

STAMP = ".opsctl.json"
MOST = 9  # builds of the same requirements: one stands, the others are damaged and in use
# A folder whose files are gone is still found, as a namespace: only the launcher's file counts.
_VERSION = (
    "import importlib.metadata as m, importlib.util as u, os\n"
    "s = u.find_spec('sglang')\n"
    "ps = list(s.submodule_search_locations or []) if s else []\n"
    "there = any(os.path.isfile(os.path.join(p, 'launch_server.py')) for p in ps)\n"
    "print(m.version('sglang') if there else '')"
)


def is_version(found: Optional[str], version: str) -> bool:
    """Exactly this version; a build's own mark (0.5.9+cu130) counts only if it is asked for."""
    return found is not None and version in (found, found.partition("+")[0])


def installed(root: str) -> Optional[str]:
    """The exact version of SGLang that an environment imports; "" if none, None if no Python."""
    python = os.path.join(root, "bin", "python")
    if not os.path.exists(python):
        return None
    try:
        return run([python, "-c", _VERSION]).strip()
    except Refused as problem:
        if "PackageNotFoundError" in str(problem):
            return ""
        raise


def packages(folder: str) -> Dict[str, List[str]]:
    """Name → versions of what is installed, by the names of the dist-info folders."""
    found: Dict[str, List[str]] = {}
    for info in sorted(Path(folder).glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = info.name[: -len(".dist-info")].partition("-")
        found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(version)
    return found


def damage(folder: str, stamp: Dict[str, Any]) -> str:
    """What keeps a build from being what its stamp says; "" if nothing."""
    try:
        found = installed(folder)
    except (Refused, OSError) as problem:
        return f"its Python does not run: {str(problem).splitlines()[-1]}"
    if found is None:
        return "bin/python is missing or leads nowhere"
    if found != stamp["version"]:
        return f"it holds SGLang {found or '(none)'}, {stamp['version']} was installed"
    now = packages(folder)
    for name, versions in (stamp.get("packages") or {}).items():
        if now.get(name) != versions:
            there = ", ".join(now.get(name, [])) or "nothing"
            return f"of {name}, {', '.join(versions)} was installed and {there} is there"
    return ""


def of(root: str, digest: str) -> Iterator[Path]:
    """Where builds of these requirements may stand: a damaged one is followed by the next."""
    name = Path(root).parent / ".builds" / f"{os.path.basename(root)}-{digest[:12]}"
    yield name
    for number in range(2, MOST + 1):
        yield name.with_name(f"{name.name}.{number}")


def whole(root: str, digest: str) -> Optional[Path]:
    """The build of these requirements that can be used."""
    for folder in of(root, digest):
        stamp = read_json(folder / STAMP)
        if stamp and stamp.get("digest") == digest and not damage(str(folder), stamp):
            return folder
    return None


def vacant(root: str, digest: str) -> Path:
    """Where the next build goes: never over one that came to its end, for something may use it."""
    for folder in of(root, digest):
        if read_json(folder / STAMP) is None:
            return folder
    raise Refused(f"{root}: {MOST} builds of it are damaged; remove those that nothing uses")


def leads_to(root: str, digest: str) -> bool:
    """Whether the link was made for these requirements, whatever is left of its build."""
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(root)) in [p.name for p in of(root, digest)]
    return False


def torn(root: str) -> List[Path]:
    """Builds of this root that did not come to their end, whatever they were of."""
    folder = Path(root).parent / ".builds"
    form = re.compile(re.escape(os.path.basename(root)) + r"-[0-9a-f]{12}(\.\d)?")
    found = [p for p in folder.iterdir() if form.fullmatch(p.name)]
    return [p for p in found if read_json(p / STAMP) is None]


def in_use(root: str) -> List[int]:
    """Processes whose program was named through this folder, or that have loaded a file of it."""
    found = []
    named, real = os.fsencode(root) + b"/", os.fsencode(os.path.realpath(root)) + b"/"
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and int(entry) != os.getpid():
                program = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0]
                if (
                    program.startswith((named, real))
                    or real in Path("/proc", entry, "maps").read_bytes()
                ):
                    found.append(int(entry))
    return found
