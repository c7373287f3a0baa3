"""A real apt repository for lab hosts: packages built here, indexed, signed, served on the bridge.

Names, versions, dependencies and what matters of the maintainer scripts are as in NVIDIA's
repository for Debian 12; no file in them is NVIDIA's. Kernel modules are stood in: lab hosts share
this machine's kernel, so `KERNEL` plays what `modprobe` and a boot would do.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DRIVERS = ("580.65.06", "580.95.05", "590.44.01")
TOOLKITS = ("12.9", "13.0")
_UNIT = "[Service]\nExecStart={run}\n[Install]\nWantedBy=multi-user.target\n"
# Fabric manager ends when the kernel runs another version than its own, as the real one does.
_FABRIC = """#!/bin/sh
loaded=$(cat /sys/module/nvidia/version)
[ "$loaded" = {version} ] || {{ echo "driver $loaded is not fabric manager's {version}"; exit 1; }}
exec sleep infinity
"""
# As DKMS: no module without the running kernel's headers. Faults of the tests' come first: a build
# that fails, and a dpkg that is killed in the middle of its work.
_DKMS = """#!/bin/sh
set -e
[ ! -e /run/lab-dkms-fails ] || {{ echo 'Error! Bad return status for module build'; exit 1; }}
[ ! -e /run/lab-dpkg-dies ] || kill -KILL $PPID
[ -d /lib/modules/$(uname -r)/build ] || {{ echo 'Error! no kernel headers'; exit 1; }}
mkdir -p /var/lib/lab-kernel && echo {version} >/var/lib/lab-kernel/nvidia
"""
KERNEL: Mapping[str, str] = {
    "/usr/local/sbin/modprobe": """#!/bin/sh
[ -e /var/lib/lab-kernel/$1 ] && [ ! -e /var/lib/lab-kernel/refuses ] ||
    { echo "modprobe: FATAL: Module $1 not found"; exit 1; }
mkdir -p /sys/module/$1 && cp /var/lib/lab-kernel/$1 /sys/module/$1/version
""",
    "/usr/local/sbin/lab-kernel": """#!/bin/sh
mount -o remount,rw /sys && mkdir -p /sys/module
[ ! -e /var/lib/lab-kernel/nvidia ] || /usr/local/sbin/modprobe nvidia
""",
    "/usr/local/sbin/update-initramfs": "#!/bin/sh\necho made anew >>/var/log/lab-initramfs\n",
    "/etc/systemd/system/lab-kernel.service": "[Unit]\nDefaultDependencies=no\n[Service]\n"
    "Type=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/sbin/lab-kernel\n"
    "[Install]\nWantedBy=sysinit.target\n",
}
# Around the rehearsal's nvidia-smi: it tells the version of the driver that the kernel stands for,
# and fails as the real one does if none is loaded, or if the library is another's.
SMI = """#!/bin/sh
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
library=$(ls /usr/lib/libnvidia-ml1.so.* 2>/dev/null | sed 's/.*so[.]//')
if [ -z "$loaded" ]; then
    echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    exit 9
fi
if [ -n "$library" ] && [ "$loaded" != "$library" ]; then
    echo "Failed to initialize NVML: Driver/library version mismatch"
    echo "NVML library version: ${library%.*}"
    exit 18
fi
/usr/bin/nvidia-smi.rehearsal "$@" | sed "s/580[.]95[.]05/$loaded/g"
"""


class Repository:
    """Folders below `top`, each a flat repository; `serve` answers on the lab's bridge."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.server: ThreadingHTTPServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"{os.environ.get('LAB_NET', '10.77.0')}.1"

    def url(self, name: str) -> str:
        return f"http://{self.address}:{self.port}/{name}/"

    def serve(self) -> None:
        handler = functools.partial(_Quiet, directory=str(self.top))
        self.server = ThreadingHTTPServer((self.address, self.port), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        assert self.server
        self.server.shutdown()
        self.server.server_close()
        for home in self.top.parent.glob("gpg-*"):  # each has an agent, which outlives gpg
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)

    def key(self, name: str, *options: str) -> Path:
        """A signing key; its armoured public half."""
        home = self.top.parent / f"gpg-{name}"
        home.mkdir(mode=0o700)
        user = f"Lab {name} <{name}@lab.invalid>"
        life = "1y" if options else "never"
        self.gpg(name, *options, "--quick-generate-key", user, "rsa2048", "sign", life)
        file = self.top.parent / f"{name}.asc"
        file.write_bytes(self.gpg(name, "--armor", "--export"))
        return file

    def gpg(self, name: str, *words: str, input: bytes = b"") -> bytes:
        home = self.top.parent / f"gpg-{name}"
        command = ["gpg", "--homedir", str(home), "--batch", "--yes", "--passphrase", "", *words]
        return subprocess.run(command, input=input, capture_output=True, check=True).stdout

    def index(self, name: str, key: str | None, *options: str, valid_days: int = 7) -> None:
        """Packages, Release, and InRelease if there is a key to sign with."""
        folder = self.top / name
        folder.mkdir(exist_ok=True)
        scan = ["dpkg-scanpackages", "--multiversion", "."]
        packages = subprocess.run(scan, cwd=folder, capture_output=True, check=True).stdout
        (folder / "Packages").write_bytes(packages)
        ends = datetime.now(UTC) + timedelta(days=valid_days)
        release = (
            "Origin: Lab\nLabel: Lab\nSuite: lab\nArchitectures: amd64\n"
            f"Date: {_date(ends - timedelta(days=8))}\nValid-Until: {_date(ends)}\n"
            f"SHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n"
        )
        (folder / "Release").write_text(release)
        if key:
            signed = self.gpg(key, *options, "--clearsign", input=release.encode())
            (folder / "InRelease").write_bytes(signed)

    def package(
        self, folder: str, name: str, version: str, files: Mapping[str, str], **fields: str
    ) -> None:
        """`fields`: Depends, Conflicts …, and `postinst`, a script."""
        tree = self.top.parent / "build" / f"{name}_{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        script = fields.pop("postinst", "")
        if script:
            _put(tree / "DEBIAN" / "postinst", script)
        for path, content in files.items():
            _put(tree / path.lstrip("/"), content)
        control = {"Package": name, "Version": version, "Architecture": "amd64"}
        control |= {"Maintainer": "Lab <lab@lab.invalid>", **fields, "Description": "of the lab"}
        text = "".join(f"{key}: {value}\n" for key, value in control.items())
        (tree / "DEBIAN" / "control").write_text(text)
        (self.top / folder).mkdir(exist_ok=True)
        build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree)]
        subprocess.run([*build, str(self.top / folder)], capture_output=True, check=True)

    def fill(self, folder: str) -> None:
        for version in DRIVERS:
            self._driver(folder, version)
        for version in TOOLKITS:
            self._toolkit(folder, version)
        kernel = platform.release()
        build = {f"/lib/modules/{kernel}/build/Makefile": "# no sources\n"}
        self.package(folder, f"linux-headers-{kernel}", "1-1", build)
        self.package(folder, "ninja-build", "1.11.1-1", {"/usr/bin/ninja": "#!/bin/sh\n"})
        self.package(folder, "g++", "4:12.2.0-3", {"/usr/bin/g++": "#!/bin/sh\n"})

    def _driver(self, folder: str, upstream: str) -> None:
        version, branch = f"{upstream}-1", upstream.partition(".")[0]
        same = f"(= {version})"
        parts = ("libcuda1", "libnvidia-ml1")
        for name in parts:
            self.package(folder, name, version, {f"/usr/lib/{name}.so.{upstream}": ""})
        dkms = _DKMS.format(version=upstream)
        self.package(folder, "nvidia-kernel-open-dkms", version, {}, postinst=dkms)
        needs = ", ".join(f"{name} {same}" for name in (*parts, "nvidia-kernel-open-dkms"))
        self.package(folder, "nvidia-open", version, {}, Depends=needs)
        self.package(folder, f"nvidia-open-{branch}", version, {}, Depends=f"nvidia-open {same}")
        self._daemon(folder, "nvidia-persistenced", version, "#!/bin/sh\nexec sleep infinity\n")
        fabric = _FABRIC.format(version=upstream)
        self._daemon(folder, "nvidia-fabricmanager", version, fabric)

    def _daemon(self, folder: str, name: str, version: str, script: str) -> None:
        unit = _UNIT.format(run=f"/usr/bin/{name}")
        files = {f"/usr/bin/{name}": script, f"/lib/systemd/system/{name}.service": unit}
        reload = "#!/bin/sh\nsystemctl daemon-reload\n"
        self.package(folder, name, version, files, postinst=reload)

    def _toolkit(self, folder: str, release: str) -> None:
        home = f"/usr/local/cuda-{release}"
        nvcc = f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n"
        link = f"--install /usr/local/cuda cuda {home} {release.replace('.', '')}"
        script = f"#!/bin/sh\nset -e\nupdate-alternatives {link}\n"
        name = f"cuda-toolkit-{release.replace('.', '-')}"
        self.package(folder, name, f"{release}.1-1", {f"{home}/bin/nvcc": nvcc}, postinst=script)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing is told."""


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755 if content.startswith("#!") else 0o644)


def _date(when: datetime) -> str:
    return when.strftime("%a, %d %b %Y %H:%M:%S UTC")
