"""Makes a lab host a rehearsal host: its stand-in machine, nvidia-smi, models and scenario.

Nothing of it is the engine: that comes by the deployment, as a wheel, like the real one.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from opsctl.errors import OpsctlError
from opsctl.lab import shell

PACKAGE = Path(__file__).resolve().parent.parent
HOME = "usr/local/lib/opsctl-rehearsal"
MODELS = "/srv/models"
REFERENCE = PACKAGE / "rehearsal" / "scenarios" / "reference.toml"
SCENARIO = "etc/opsctl-rehearsal/scenario.toml"
UNIT = """\
[Unit]
Description=REHEARSAL: stands for the memory and the GPUs of another machine
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=notify
Environment=PYTHONPATH=/{home}
ExecStart=/usr/bin/python3 -m opsctl.rehearsal.machine

[Install]
WantedBy=sysinit.target
"""
SMI = """\
#!/bin/sh
# REHEARSAL: no GPU is here.
PYTHONPATH=/{home} exec /usr/bin/python3 -Ss -m opsctl.rehearsal.nvidia_smi "$@"
"""
# A host that was made one before is left alone: an engine may hold memory there.
SETUP = f"""\
test ! -e /{SCENARIO} || exit 0
set -e
tar xf - -C / --no-same-owner
systemctl daemon-reload
systemctl enable --quiet opsctl-rehearsal-machine.service
systemctl restart opsctl-rehearsal-machine.service
test -e {MODELS}/tiny-llama/config.json ||
    PYTHONPATH=/{HOME} python3 -m opsctl.rehearsal.model_files {MODELS}
"""


def prepare(host: str, scenario: Path = REFERENCE) -> None:
    """`scenario`: what its engine plays. Raises OpsctlError with what the host said."""
    _ssh(host, SETUP, archive(scenario))


def play(host: str, scenario: str) -> None:
    """Put a scenario's text in place on a host."""
    _ssh(host, f"cat > /{SCENARIO}.new && mv /{SCENARIO}.new /{SCENARIO}", scenario.encode())


def archive(scenario: Path) -> bytes:
    """What a rehearsal host needs on its disk, as a tar."""
    files = {
        f"{HOME}/opsctl/__init__.py": (PACKAGE / "__init__.py").read_bytes(),
        "etc/systemd/system/opsctl-rehearsal-machine.service": UNIT.format(home=HOME).encode(),
        "usr/bin/nvidia-smi": SMI.format(home=HOME).encode(),
        SCENARIO: scenario.read_bytes(),
    }
    for path in sorted((PACKAGE / "rehearsal").rglob("*")):
        if path.suffix in (".py", ".toml"):
            files[f"{HOME}/opsctl/{path.relative_to(PACKAGE)}"] = path.read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if name.startswith("usr/bin/") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _ssh(host: str, command: str, data: bytes) -> None:
    config = shell.folder() / "ssh" / "config"
    done = subprocess.run(
        ["ssh", "-F", str(config), host, "--", command],
        input=data,
        capture_output=True,
        timeout=120,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-10:]
        raise OpsctlError(
            "the host could not be made a rehearsal host", host=host, step="lab up", log=said
        )
