"""What the roles' variables ask for, against what the described engines need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible import fitting
from opsctl.ansible.compatibility import judge as judged_on_host
from opsctl.engine.compatibility import needs
from opsctl.errors import Problem
from opsctl.onhost.doctor.driver import older
from opsctl.spec.models import Service

MIRROR = "https://mirror/whl/"


def service(version: str = "0.5.9", env: Any = None, install: Any = None, **flags: Any) -> Service:
    return Service.model_validate(
        {
            "model": {"path": "/srv/m"},
            "engine": {"version": version, **({"install": install} if install else {})},
            "port": 30000,
            "flags": flags,
            "env": env or {},
        }
    )


def told(values: dict[str, Any], *services: Service, folder: object = "") -> list[Problem]:
    hosts = {"h1": {f"s{n}": one for n, one in enumerate(services)}}
    return fitting.problems({"h1": fitting.asked(values, folder)}, hosts)


def branch(name: object, version: object = "") -> dict[str, Any]:
    return {"nvidia_driver_branch": name, "nvidia_driver_version": version}


def kits(*names: str, default: object = "") -> dict[str, Any]:
    return {"cuda_toolkits": list(names), "cuda_default": default}


BOTH = (service("0.5.9"), service("0.5.23"))
OWN = {"CUDA_HOME": "/usr/local/cuda-13.0"}


@pytest.mark.parametrize(
    ("values", "services", "key", "words"),
    [
        (branch("535"), [service()], "nvidia_driver_branch", "550.54.14 or newer, 535 is asked"),
        (branch(535), [service()], "nvidia_driver_branch", "550.54.14 or newer, 535 is asked"),
        (branch("550"), [service()], "", ""),  # its newest is enough
        (branch("550", "550.54.14"), [service()], "", ""),
        (
            branch("550", "550.40.07"),
            [service()],
            "nvidia_driver_version",
            "550.40.07 is asked for. Ask for nvidia_driver_version 550.54.14 or newer (",
        ),
        (
            branch("535", "535.183.01"),
            [service()],
            "nvidia_driver_version",
            "535.183.01 is asked for. Ask for nvidia_driver_branch 550 or newer (",
        ),
        (branch("570"), [service("0.5.23")], "nvidia_driver_branch", "580.65.06 or newer"),
        (branch("570"), BOTH, "nvidia_driver_branch", "s1: SGLang 0.5.23 needs"),
        (branch("", "535.183.01"), [service()], "", ""),  # nothing is installed: told as such
        (branch("535"), [service(device="cpu")], "", ""),
        (branch("535"), [service(device="hip")], "", ""),
        (branch("535"), [service("0.5.9+local")], "", ""),  # nothing is known, nothing is claimed
        (branch("535"), [], "", ""),
        (kits("13.0"), [service()], "cuda_toolkits", "built for CUDA 12.8; /usr/local/cuda would"),
        (kits("11.8", default="11.8"), [service()], "cuda_default", "would lead to 11.8"),
        (kits("13.0", "12.9"), [service()], "cuda_toolkits", 'write cuda_default: "12.9";'),
        (
            kits("11.8"),
            [service()],
            "cuda_toolkits",
            'write cuda_default: "12.8" and 12.8 into cuda_toolkits; ',
        ),
        (kits("13.0", "12.9", default="12.9"), [service()], "", ""),
        (kits("12.4"), [service()], "", ""),  # of one major
        (kits("13.2"), [service("0.5.23")], "", ""),
        (kits("12.9"), [service("0.5.23")], "cuda_toolkits", "built for CUDA 13.0"),
        (kits("12.9"), BOTH, "", ""),  # one of them at least
        (kits("11.8"), BOTH, "cuda_toolkits", "s1: torch of SGLang 0.5.23 is built for CUDA 13.0"),
        (kits("13.0"), [service(env=OWN)], "", ""),
        (kits("13.0"), [service(device="cpu")], "", ""),
        (kits("13.0"), [service("0.5.9+local")], "", ""),
        (kits(), [service()], "", ""),
    ],
)
def test_told(values: dict[str, Any], services: list[Service], key: str, words: str) -> None:
    found = told(values, *services)
    if not words:
        assert found == []
        return
    (problem,) = found
    assert (problem.host, problem.key) == ("h1", key) and words in str(problem)
    assert repr(str(values[key])) in problem.value or problem.value == repr(values[key])


@pytest.mark.parametrize(
    ("pinned", "more", "driver", "toolkit"),
    [
        ("torch==2.9.1+cu130 --hash=sha256:0\n", {}, "580.65.06", "12.9"),
        ("torch==2.9.1 --hash=sha256:0\n", {"torch_index": MIRROR + "cu130"}, "580.65.06", "12.9"),
        ("torch==2.9.1\n", {"torch_index": MIRROR + "{cuda}/"}, "550.54.14", "13.0"),
        ("torch==2.9.1+cu126\n", {"torch_index": MIRROR + "cu130"}, "550.54.14", "13.0"),
        ("torch==2.9.1+cpu\n", {}, "550.54.14", ""),
        (None, {}, "550.54.14", "13.0"),  # a file that is not there is told by the role `engine`
    ],
)
def test_a_torch_of_another_build_has_its_own_needs(
    pinned: str | None, more: dict[str, str], driver: str, toolkit: str, tmp_path: Path
) -> None:
    if pinned is not None:
        (tmp_path / "pins.txt").write_text(pinned)
    one = service(install={"requirements": "pins.txt", **more})
    name, _, rest = driver.partition(".")
    below = f"{name}.{int(rest.split('.')[0]) - 1}.99"
    assert told(branch(name, driver), one, folder=tmp_path) == []
    assert f"needs NVIDIA driver {driver} or newer" in str(
        told(branch(name, below), one, folder=tmp_path)[0]
    )
    other = {"12.9": "13.0", "13.0": "12.9"}.get(toolkit, "13.0")
    assert told(kits(other), one, folder=tmp_path) == []
    assert bool(told(kits(toolkit), one, folder=tmp_path)) is bool(toolkit)


@pytest.mark.parametrize("driver", ["535.183.01", "550.54.13", "550.54.14", "580.95.05"])
@pytest.mark.parametrize("version", ["0.5.2", "0.5.9", "0.5.11", "0.5.23"])
def test_validate_roles_and_doctor_judge_a_driver_alike(version: str, driver: str) -> None:
    offline = bool(told(branch(driver.partition(".")[0], driver), service(version)))
    need = {"service": "s0", "version": version, "device": "cuda", "gpus": None, "count": 1}
    on_host = bool(judged_on_host(need, driver, [{"index": 0, "state": "ok"}]))
    by_doctor = older(driver, needs(version)["driver"])
    assert offline is on_host is by_doctor
