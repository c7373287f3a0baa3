"""A process of this machine, for `opsctl import --kind pid`: what /proc tells of it."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opsctl.errors import Refused

if TYPE_CHECKING:
    from opsctl.importing import Asked, Imported


def imported(sources: Sequence[str], asked: Asked) -> Imported:
    """Raises Refused: no such process, or it is not ours to read."""
    from opsctl.importing import from_process

    if len(sources) != 1 or not sources[0].isdigit():
        raise Refused("--kind pid takes one process by its number", hint="pgrep -f launch_server")
    folder = Path("/proc", sources[0])
    try:
        argv = _split(folder / "cmdline")
        environ = dict(text.partition("=")[::2] for text in _split(folder / "environ"))
        cwd = str((folder / "cwd").readlink())
        user = pwd.getpwuid(folder.stat().st_uid).pw_name
        program = str((folder / "exe").readlink())
    except (OSError, KeyError) as error:
        raise Refused(
            f"cannot read process {sources[0]}: {getattr(error, 'strerror', None) or error}",
            hint="as root, on the host it runs on",
        ) from error
    if any(re.fullmatch(r"/etc/opsctl/.*/launch\.py", word) for word in argv[1:4]):
        raise Refused(
            f"process {sources[0]} is of a service of opsctl, whose secrets no process tells",
            hint="opsctl import --host HOST --own reads its unit and its secrets, too",
        )
    hint = _version(argv, program)
    return from_process(argv, environ, "", hint, asked=asked, cwd=cwd, user=user)


def _split(path: Path) -> list[str]:
    raw = path.read_bytes().removesuffix(b"\0")
    return [os.fsdecode(part) for part in raw.split(b"\0")] if raw else []


def _version(argv: Sequence[str], program: str) -> str:
    """What the environment of the program says it has installed: sglang-0.5.9.dist-info."""
    for path in (*argv[:2], program):
        if path.startswith("/"):
            root = Path(path).parent.parent
            for found in root.glob("lib/python3*/site-packages/sglang-*.dist-info"):
                return found.name
    return ""
