"""The role `cuda`: what nvidia-smi says, and the toolkits that kernels are compiled with.

The controller judges driver and GPUs: it knows the engines' needs. Toolkits come without a driver,
several side by side; /usr/local/cuda is the one that an engine finds when it compiles.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Dict, List, Tuple

from opsctl.ansible.target.converge import Host, Refused, run
from opsctl.ansible.target.driverpackages import mend
from opsctl.ansible.target.repository import here, key_of, url_of
from opsctl.onhost.gpus import report

LINK = "/usr/local/cuda"
_FAMILY = ("cuda*", "lib*", "nsight*", "gds-tools*", "ninja-build", "g++*", "gcc*")


def main(args: Dict[str, Any]) -> Dict[str, Any]:
    """`args`: toolkits ["13.0"], default ("" takes the first), repository, allow_repair, check; or
    none of them. {"gpus", "driver", "cuda", "gpu_error"} as `collect` tells them, and `toolkit`:
    {"changed", "diff", "problems"}.
    """
    if not args.get("toolkits"):
        return {**report(), "toolkit": {"changed": False, "diff": [], "problems": []}}
    host = Host(check=args["check"])
    try:
        problems = _toolkits(host, args)
    except Refused as problem:
        problems = [str(problem)]
    return {**report(), "toolkit": {**host.result(), "problems": problems}}


def _toolkits(host: Host, args: Dict[str, Any]) -> List[str]:
    known, manager = here()
    mend(host, manager, args["allow_repair"])
    versions = [_two(version) for version in args["toolkits"]]
    installed = manager.installed()
    packages = [known["toolkit"].format(major=a, minor=b) for a, b in versions]
    packages += [known["ninja"], known["compiler"]]
    lacking = [name for name in packages if name not in installed]
    url = url_of(args["repository"], known)
    key = key_of(args["repository"], url)
    fresh = manager.repository(host, url, key)
    if lacking and not host.check:
        if not fresh:
            manager.update(url, key)
        for name in lacking:
            if name.startswith("cuda-") and not manager.available(name):
                raise Refused(f"package {name}: {url} does not hold it; look with: apt-cache "
                              "search cuda-toolkit (dnf search cuda-toolkit)")  # fmt: skip
        manager.install([(name, "") for name in lacking], _FAMILY, url)
    if lacking:
        host.changed("packages", "", "".join(f"{name}\n" for name in lacking))
    default = args["default"] or args["toolkits"][0]
    _choose(host, default)
    return [] if host.check else _wrong(args["toolkits"])


def _two(version: str) -> Tuple[str, str]:
    major, _, minor = version.partition(".")
    return major, minor


def _choose(host: Host, version: str) -> None:
    """By alternatives, as the packages do it: a link of our own would be taken back by them."""
    folder = f"{LINK}-{version}"
    now = os.path.realpath(LINK) if os.path.lexists(LINK) else ""
    if now == os.path.realpath(folder):
        return
    if os.path.lexists(LINK) and not os.path.islink(LINK):
        raise Refused(f"{LINK} is a folder that no package made: move it away, so that it can be "
                      f"a link to {folder}")  # fmt: skip
    if not host.changed(LINK, f"{now}\n" if now else "", f"{folder}\n"):
        return
    if not os.path.isdir(folder):
        raise Refused(f"{folder} is not there after the installation of CUDA {version}")
    tool = shutil.which("update-alternatives") or "alternatives"
    run([tool, "--install", LINK, "cuda", folder, version.replace(".", "")])
    run([tool, "--set", "cuda", folder])


def _wrong(versions: List[str]) -> List[str]:
    """What does not answer though it is installed."""
    found = []
    for version in versions:
        nvcc = f"{LINK}-{version}/bin/nvcc"
        try:
            told = run([nvcc, "--version"])
        except Refused as problem:
            found.append(f"CUDA {version}: {problem}")
            continue
        if release(told) != version:
            found.append(f"{nvcc} says it is release {release(told)}, not {version}")
    if not shutil.which("ninja"):
        found.append("ninja is not on PATH though its package is installed")
    return found


def release(told: str) -> str:
    """13.0 of nvcc's "Cuda compilation tools, release 13.0, V13.0.88"."""
    found = re.search(r"release (\d+\.\d+)", told)
    return found.group(1) if found else "(none)"
