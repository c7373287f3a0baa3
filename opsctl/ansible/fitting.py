"""What the roles' variables ask for against what the engines of the same host need: before any
host is asked, by the figures with which roles, `plan` and `doctor` judge what is there.

A branch alone is judged by the newest that it may have. Of a release that is not listed, and of an
engine that runs without CUDA, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsctl.ansible.compatibility import built_for, torch_build
from opsctl.ansible.target.converge import Refused
from opsctl.ansible.target.driverplan import refuse_too_old
from opsctl.errors import Problem
from opsctl.spec.models import Service

# The variables that are read here; `folder` is where the paths of a host's description start.
BRANCH, VERSION = "nvidia_driver_branch", "nvidia_driver_version"
TOOLKITS, DEFAULT = "cuda_toolkits", "cuda_default"
KEYS = (BRANCH, VERSION, TOOLKITS, DEFAULT)
FOLDER = "folder"
# By these an engine finds the toolkit that it compiles with, wherever /usr/local/cuda leads.
OWN_TOOLKIT = ("CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True)
class Engine:
    """Of one service. `driver`: the least that it runs on, and `cuda`: what its torch is built for;
    each "" where it is not known."""

    service: str
    version: str
    driver: str
    cuda: str
    own_toolkit: bool


def asked(values: Mapping[str, Any], folder: object) -> dict[str, Any]:
    """Of one host's variables, each of them right: what is judged here, as text; {} for nothing."""
    found: dict[str, Any] = {
        key: str(values[key]) for key in (BRANCH, VERSION, DEFAULT) if values.get(key)
    }
    if kits := values.get(TOOLKITS):
        found[TOOLKITS] = [str(one) for one in (kits if isinstance(kits, list) else [kits])]
    return found | {FOLDER: str(folder or ".")} if found else {}


def problems(
    asks: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Service]]
) -> list[Problem]:
    """`asks`: what `asked` answers, by host. `hosts`: the services of each."""
    return [
        problem
        for host, services in hosts.items()
        for problem in _of_host(host, asks.get(host) or {}, services)
    ]


def _of_host(
    host: str, asks: Mapping[str, Any], services: Mapping[str, Service]
) -> Iterator[Problem]:
    if not asks:
        return
    found = [
        _engine(name, service, Path(asks[FOLDER]))
        for name, service in services.items()
        if (service.flags.get("device") or "cuda") == "cuda"
    ]
    yield from _driver(host, asks, found)
    yield from _toolkit(host, asks, found)


def _engine(name: str, service: Service, folder: Path) -> Engine:
    install, build = service.engine.install, None
    if install is not None:
        pinned = _text(folder / Path(install.requirements).expanduser())
        build = torch_build(pinned, [i for i in (install.torch_index, install.index) if i])
    own = any(key in service.env for key in OWN_TOOLKIT)
    version = service.engine.version
    return Engine(name, version, **built_for(version, build), own_toolkit=own)


def _driver(host: str, asks: Mapping[str, Any], found: list[Engine]) -> Iterator[Problem]:
    if BRANCH not in asks:
        return
    key = VERSION if VERSION in asks else BRANCH
    needs = [
        {"service": one.service, "engine": one.version, "driver": one.driver}
        for one in found
        if one.driver
    ]
    try:
        refuse_too_old(asks[key], needs)
    except Refused as said:
        yield Problem(str(said), host=host, key=key, value=repr(asks[key]))


def _toolkit(host: str, asks: Mapping[str, Any], found: list[Engine]) -> Iterator[Problem]:
    """Of services whose torch is built for different CUDAs one at least must have its toolkit."""
    judged = [one for one in found if one.cuda and not one.own_toolkit]
    toolkits = asks.get(TOOLKITS)
    if not (toolkits and judged):
        return
    key = DEFAULT if DEFAULT in asks else TOOLKITS
    default = asks.get(DEFAULT) or toolkits[0]
    majors = {_major(one.cuda) for one in judged}
    if _major(default) in majors:
        return
    built = "; ".join(
        f"service {one.service}: torch of SGLang {one.version} is built for CUDA {one.cuda}"
        for one in judged
    )
    right = next((one for one in toolkits if _major(one) in majors), "")
    lacking = "" if right else f" and {judged[0].cuda} into {TOOLKITS}"
    yield Problem(
        f"{built}; /usr/local/cuda would lead to {default}, and what is compiled at run time would "
        "be of another CUDA",
        host=host,
        key=key,
        value=repr(asks[key]),
        hint=f'write {DEFAULT}: "{right or judged[0].cuda}"{lacking}; for a torch of another build '
        f"write CUDA_HOME: /usr/local/cuda-{default} into the service's env",
    )


def _major(version: str) -> str:
    return version.partition(".")[0]


def _text(path: Path) -> str:
    """ "" of what cannot be read: the role `engine` tells that."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
