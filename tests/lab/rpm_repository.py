"""A real dnf repository for lab hosts, as NVIDIA's for RHEL 9 is laid out: packages built here,
signed, indexed, with module streams; served as the apt repository is.

Names, versions, epochs, dependencies and what matters of the scripts are as there; no file in them
is NVIDIA's.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lab.apt_repository import DRIVERS, TOOLKITS, Repository

# A stream shows the packages of its branch only, and none at all before one is enabled.
_STREAM = """\
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: {branch}-open
  version: 1
  context: lab
  arch: noarch
  summary: of the lab
  description: of the lab
  license: {{module: [none]}}
  artifacts:
    rpms:
{artifacts}"""
_SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Epoch: {epoch}
Summary: of the lab
License: none
BuildArch: noarch
AutoReqProv: no
{fields}
%description
of the lab
{scripts}
%files
{files}
"""


class RpmRepository(Repository):
    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.made: dict[str, list[tuple[str, str]]] = {}  # folder → (NEVRA, version)

    def rpm(
        self,
        folder: str,
        name: str,
        version: str,
        files: dict[str, str] | None = None,
        *,
        epoch: int = 0,
        release: str = "1.el9",
        post: str = "",
        **fields: str,
    ) -> None:
        build = self.top.parent / "rpm" / f"{name}-{version}"
        build.mkdir(parents=True)
        listed, install = [], []
        for number, (path, content) in enumerate((files or {}).items()):
            (build / str(number)).write_text(content)
            mode = "755" if content.startswith("#!") else "644"
            install.append(f"install -D -m {mode} {build}/{number} %{{buildroot}}{path}")
            listed.append(path)
        scripts = "%install\n" + "\n".join(install) + (f"\n%post\n{post}\n" if post else "\n")
        spec = build / "one.spec"
        spec.write_text(
            _SPEC.format(
                name=name, version=version, release=release, epoch=epoch, scripts=scripts,
                fields="".join(f"{key}: {value}\n" for key, value in fields.items()),
                files="\n".join(listed),
            )
        )  # fmt: skip
        options = {"_topdir": str(build), "_rpmdir": str(self.top / folder),
                   "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
                   "_build_id_links": "none", "__brp_strip": "/bin/true"}  # fmt: skip
        words = [word for key, value in options.items() for word in ("--define", f"{key} {value}")]
        subprocess.run(["rpmbuild", "-bb", *words, str(spec)], capture_output=True, check=True)
        nevra = f"{name}-{epoch}:{version}-{release}.noarch"
        self.made.setdefault(folder, []).append((nevra, version))

    def publish(self, folder: str, key: str) -> None:
        """Signed packages, the index, and a stream for each branch of the driver."""
        home = self.top.parent / f"gpg-{key}"
        rpms = [str(path) for path in (self.top / folder).glob("*.rpm")]
        macros = {"_gpg_name": f"Lab {key} <{key}@lab.invalid>", "_gpg_path": str(home),
                  "__gpg": str(shutil.which("gpg"))}  # fmt: skip
        words = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
        sign = ["rpmsign", "--addsign", *words]
        subprocess.run([*sign, *rpms], capture_output=True, check=True)
        index = ["createrepo_c", "--quiet", str(self.top / folder)]
        subprocess.run(index, capture_output=True, check=True)
        streams = []
        for branch in sorted({version.partition(".")[0] for version in DRIVERS}):
            rows = [f"    - {nevra}\n" for nevra, version in self.made[folder]
                    if version in DRIVERS and version.startswith(f"{branch}.")]  # fmt: skip
            streams.append(_STREAM.format(branch=branch, artifacts="".join(rows)))
        file = self.top.parent / f"modules-{folder}.yaml"
        file.write_text("---\n" + "...\n---\n".join(streams) + "...\n")
        repodata = str(self.top / folder / "repodata")
        add = ["modifyrepo_c", "--mdtype=modules", str(file), repodata]
        subprocess.run(add, capture_output=True, check=True)

    def fill_el9(self, folder: str) -> None:
        # The host's shell is none of rpm's packages: this one stands for it.
        self.rpm(folder, "lab-shell", "1", Provides="/bin/sh")
        for version in DRIVERS:
            self._branch(folder, version)
        for release in TOOLKITS:
            home = f"/usr/local/cuda-{release}"
            nvcc = f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n"
            link = f"--install /usr/local/cuda cuda {home} {release.replace('.', '')}"
            name = f"cuda-toolkit-{release.replace('.', '-')}"
            post = f"update-alternatives {link}"
            self.rpm(folder, name, f"{release}.1", {f"{home}/bin/nvcc": nvcc}, post=post)
        self.rpm(folder, "ninja-build", "1.10.2", {"/usr/bin/ninja": "#!/bin/sh\n"})
        self.rpm(folder, "gcc-c++", "11.5.0", {"/usr/bin/g++": "#!/bin/sh\n"})

    def _branch(self, folder: str, version: str) -> None:
        same = f"= 3:{version}"
        load = f"mkdir -p /var/lib/lab-kernel && echo {version} >/var/lib/lab-kernel/nvidia"
        self.rpm(folder, "kmod-nvidia-open-dkms", version, epoch=3, post=load)
        library = {f"/usr/lib/libcuda.so.{version}": ""}
        self.rpm(folder, "nvidia-driver-cuda-libs", version, library, epoch=3)
        needs = f"kmod-nvidia-open-dkms {same}, nvidia-driver-cuda-libs {same}"
        self.rpm(folder, "nvidia-open", version, epoch=3, Requires=needs)
        for name, epoch in (("nvidia-persistenced", 3), ("nvidia-fabricmanager", 0)):
            script = "#!/bin/sh\nexec sleep infinity\n"
            unit = f"[Service]\nExecStart=/usr/bin/{name}\n[Install]\nWantedBy=multi-user.target\n"
            files = {f"/usr/bin/{name}": script, f"/usr/lib/systemd/system/{name}.service": unit}
            self.rpm(folder, name, version, files, epoch=epoch, post="systemctl daemon-reload")
