"""The ground floor as one file, and how to run it on a host without leaving anything behind."""

from __future__ import annotations

import io
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import List

# Reads the program (its length is the first argument) from stdin into a memory file, and leaves
# the rest of stdin to the verb. os.read, since a buffered read would swallow the verb's part.
# Python 2 has to be able to read it, and to say that it is too old.
OLD = """\
if sys.version_info < (3, 9):
    sys.exit("opsctl-old-python %d.%d.%d %s" % (sys.version_info[:3] + (sys.executable,)))
"""
_BOOT = f"""\
import os, sys
{OLD}left = int(sys.argv.pop(1))
memory = os.memfd_create("opsctl")
while left:
    part = os.read(0, min(left, 65536))
    if not part:
        sys.exit("opsctl: the connection ended within the program")
    os.write(memory, part)
    left -= len(part)
sys.argv[0] = "/proc/self/fd/%d" % memory
sys.path.insert(0, sys.argv[0])
from opsctl.onhost.__main__ import main
sys.exit(main())
"""

_MAIN = b"import sys\nfrom opsctl.onhost.__main__ import main\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the least that a zip can hold: the same input gives the same bytes


def _entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = 0o644 << 16
    info.create_system = 3
    archive.writestr(info, content, zipfile.ZIP_DEFLATED, 9)


@lru_cache(maxsize=None)
def build() -> bytes:
    """The zipapp: the same sources give the same bytes. Inside a zipapp, that zipapp itself."""
    folder = Path(__file__).resolve().parent
    if not folder.is_dir():
        return _own_archive()
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        _entry(archive, "__main__.py", _MAIN)
        _entry(archive, "opsctl/__init__.py", b"")
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix()
            _entry(archive, f"opsctl/onhost/{name}", path.read_bytes())
    return into.getvalue()


def _own_archive() -> bytes:
    archive = getattr(__spec__.loader if __spec__ else None, "archive", sys.argv[0])
    return Path(archive).read_bytes()


def boot_argv(length: int, *verb: str) -> List[str]:
    """The whole command line. -I, since root's working directory must not be a place of modules."""
    return ["python3", "-I", "-c", _BOOT, str(length), *verb]
