"""Builds the wheel that stands in for SGLang: a real wheel named sglang, version 0.5.9+rehearsal.

It holds the stand-in, its scenarios and the catalogue, so that a host installs it from a wheel
mirror with pip and hashes as it would install the engine. The same sources give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
LOCAL = "rehearsal"
SUMMARY = "NOT SGLang: a rehearsal stand-in that plays a scenario file and loads no model"
LAUNCH = (
    '"""A rehearsal stand-in: no model is loaded."""\n\n'
    "from opsctl.rehearsal.launch import main\n\n"
    'if __name__ == "__main__":\n    main()\n'
)
EPOCH = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    path: Path
    requirements: Path


def sources(version: str) -> Iterator[tuple[str, bytes]]:
    """What the wheel installs, by path: the shim, and the rooms that the stand-in needs."""
    yield "sglang/__init__.py", f'"""{SUMMARY}."""\n\n__version__ = "{version}"\n'.encode()
    yield "sglang/launch_server.py", LAUNCH.encode()
    for name in ("__init__.py", "errors.py"):
        yield f"opsctl/{name}", (PACKAGE / name).read_bytes()
    for room in ("engine", "rehearsal"):
        for path in sorted((PACKAGE / room).rglob("*")):
            if path.is_file() and path.suffix in (".py", ".toml", ".json"):
                yield f"opsctl/{path.relative_to(PACKAGE)}", path.read_bytes()


def build(version: str, folder: Path) -> Wheel:
    """Write the wheel for an engine version, and requirements-VERSION.txt with its hash."""
    full = f"{version}+{LOCAL}"
    info = f"sglang-{full}.dist-info"
    files = dict(sources(version))
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: sglang\nVersion: {full}\nSummary: {SUMMARY}\n"
        "Requires-Python: >=3.11\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: opsctl-rehearsal\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n"
    )
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"sglang-{full}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    requirements = folder / f"requirements-{version}.txt"
    requirements.write_text(f"sglang=={full} --hash=sha256:{digest}\n")
    return Wheel(path, requirements)


def _digest(data: bytes) -> str:
    raw = hashlib.sha256(data).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
