"""The program of the role nvidia_driver over a package manager that is a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from opsctl.ansible.target import nvidia_driver
from opsctl.ansible.target.converge import Host
from opsctl.ansible.target.distro import layout
from opsctl.ansible.target.driverplan import ROLL
from opsctl.rollout.driver import PLAYBOOK

OLD, NEW = "580.65.06", "580.95.05"
CORE = ("nvidia-open", "nvidia-open-580", "libcuda1", "nvidia-fabricmanager")
HELD = (*CORE, "nvidia-persistenced", "nvidia-settings")
ARGS = {
    "branch": "580",
    "version": NEW,
    "repository": {"url": "http://m/", "key": "k"},
    "fabric_manager": "yes",
    "persistence": True,
    "hold": True,
    "allow_downgrade": False,
    "allow_repair": False,
    "check": False,
    "roll": "ansible-playbook -i inv upgrade_driver.yml",
}
REBOOTING = {"roll_rebooting": f"{ARGS['roll']} -e nvidia_driver_allow_reboot=true"}


class Table:
    """A host's packages, and a repository that holds `HELD` in both versions. What is installed
    takes along the packages of `CORE`, as their dependencies say."""

    repair_command = "dpkg --configure -a"

    def __init__(self, **installed: str) -> None:
        self.there = {name.replace("_", "-"): f"{v}-1" for name, v in installed.items()}
        self.held_ones: set[str] = set()
        self.lacks: tuple[str, ...] = ()
        self.asked: list[list[str]] = []

    def damaged(self) -> list[str]:
        return []

    def installed(self) -> dict[str, str]:
        return dict(self.there)

    def repository(self, host: Host, url: str, key: bytes) -> bool:
        return False

    def update(self, url: str, key: bytes) -> None: ...

    def available(self, name: str) -> list[str]:
        return [f"{NEW}-1", f"{OLD}-1"] if name in HELD and name not in self.lacks else []

    def pin(self, host: Host, upstream: str) -> None: ...

    def unpin(self, before: Any) -> None: ...

    def pinned(self) -> None: ...

    def install(
        self, wanted: Sequence[tuple[str, str]], family: Any, url: str, fetch: bool = False
    ) -> None:
        self.asked.append([name for name, _ in wanted])
        if fetch:
            return
        for name, version in wanted:
            along = CORE if name.startswith("nvidia-open") else ()
            self.there |= dict.fromkeys((name, *along), version)

    def held(self) -> list[str]:
        return sorted(self.held_ones)

    def hold(self, names: Sequence[str]) -> None:
        self.held_ones |= set(names)

    def unhold(self, names: Sequence[str]) -> None:
        self.held_ones -= set(names)

    def versions(self) -> set[str]:
        return set(self.there.values())


def whole(version: str, **changes: str) -> Table:
    return Table(**{name.replace("-", "_"): version for name in HELD} | changes)


Host_ = dict[str, Any]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Host_:
    """What a host tells; "units" as systemctl lists them."""
    told: Host_ = {"loaded": NEW, "users": [], "units": "", "parked": [], "table": whole(NEW)}
    seen = {"kernel": "6.1", "nouveau": False, "nvswitch": False, "nvlink5": False}
    seen |= {"headers": True, "secure_boot": None, "reboot_required": []}
    known = layout('VERSION_ID="12"\nID=debian\n', "x86_64")

    def run(words: list[str], *_: Any) -> str:
        if "list-units" in words:
            return str(told["units"])
        return "UnitFileState=enabled\nActiveState=active\n" if "show" in words else ""

    for name, value in {
        "here": lambda: (known, told["table"]),
        "look": lambda: {**seen, "loaded": told["loaded"], "users": list(told["users"])},
        "parked": lambda: told["parked"],
        "run": run,
        "key_of": lambda *_: b"",
        "_nouveau_off": lambda *_: None,
    }.items():
        monkeypatch.setattr(nvidia_driver, name, value)
    monkeypatch.setattr(nvidia_driver.shutil, "which", lambda name: f"/usr/bin/{name}")
    return told


ACTIVE = "sglang-kimi.service loaded active running x\n"
RESTARTS = "sglang-kimi.service loaded activating auto-restart x\n"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"units": ACTIVE}, "sglang-kimi.service (active)"),
        ({"units": RESTARTS}, "sglang-kimi.service (activating)"),
        ({"parked": ["sglang-kimi.service"]}, "sglang-kimi.service (parked)"),
    ],
)
def test_neither_packages_nor_a_boot_come_under_a_service_that_is_to_serve(
    here: Host_, told: Host_, words: str
) -> None:
    here.update(told, table=whole(OLD), loaded=OLD)
    found = nvidia_driver.main(dict(ARGS))
    assert found["problems"] == [
        f"driver {OLD} is in use by {words} and is not replaced under it (due: driver {NEW}, "
        f"fabric manager {NEW}, a reboot): host by host, behind doctor and gates, it is "
        f"done by: {ARGS['roll']}"
    ]
    assert here["table"].asked == [] and not found["changed"]
    here["table"] = whole(NEW)  # somebody has moved the packages
    (problem,) = nvidia_driver.main(dict(ARGS))["problems"]
    assert problem.startswith(f"a reboot is needed (the kernel runs driver {OLD}, {NEW} is ")
    assert problem.endswith(f"would end {words}: host by host, behind doctor and gates, it is "
                            f"done by: {ARGS['roll']}")  # fmt: skip
    (problem,) = nvidia_driver.main(ARGS | REBOOTING)["problems"]
    assert problem.endswith(f"it is done by: {REBOOTING['roll_rebooting']}")


def test_a_service_without_gpus_keeps_packages_from_nobody_but_no_boot_ends_it(
    here: Host_,
) -> None:
    here.update(units=ACTIVE, table=whole(OLD), loaded=OLD)
    found = nvidia_driver.main(ARGS | {"without_gpus": ["kimi"]})
    assert here["table"].versions() == {f"{NEW}-1"}
    (problem,) = found["problems"]
    assert "it would end sglang-kimi.service (active): host by host" in problem


def test_a_first_driver_comes_though_a_service_fails_for_want_of_it(here: Host_) -> None:
    here.update(units=RESTARTS, table=Table(), loaded=None)
    found = nvidia_driver.main(dict(ARGS))
    assert (found["problems"], found["driver"], found["reboot"]) == ([], NEW, [])


def test_the_roll_moves_packages_under_what_it_has_parked_and_under_nothing_else(
    here: Host_,
) -> None:
    here.update(units=ACTIVE, table=whole(OLD), loaded=OLD)
    look = nvidia_driver.main(ARGS | {"rolling": True, "stopping": True, "check": True})
    assert look["problems"] == [] and "driver" in look["parts"]
    assert nvidia_driver.main(ARGS | {"rolling": True})["problems"]  # it has not ended
    here.update(units="", parked=["sglang-kimi.service"])
    found = nvidia_driver.main(ARGS | {"rolling": True})
    assert found["problems"] == [] and len(found["reboot"]) == 1


def test_what_stands_beside_the_driver_with_anothers_version_is_brought_to_it_and_held(
    here: Host_,
) -> None:
    table = here["table"] = whole(NEW, nvidia_persistenced=OLD, nvidia_settings=OLD)
    found = nvidia_driver.main(dict(ARGS))
    assert (found["problems"], found["parts"]) == ([], ["persistence", "companions"])
    assert table.versions() == {f"{NEW}-1"} and table.held_ones == set(HELD)
    again = nvidia_driver.main(dict(ARGS))
    assert (again["changed"], again["parts"], again["warnings"]) == (False, [], [])


def test_under_a_service_that_runs_only_persistence_is_brought_to_the_driver(here: Host_) -> None:
    table = here["table"] = whole(NEW, nvidia_persistenced=OLD, nvidia_settings=OLD)
    here["units"] = ACTIVE
    found = nvidia_driver.main(dict(ARGS))
    assert (found["problems"], found["parts"]) == ([], ["persistence"])
    assert table.there["nvidia-settings"] == f"{OLD}-1"
    assert table.held_ones == set(HELD) - {"nvidia-settings"}
    assert "nvidia-settings" in found["warnings"][0]
    look = nvidia_driver.main(ARGS | {"rolling": True, "stopping": True, "check": True})
    assert look["parts"] == ["companions"]


def test_what_is_named_in_use_is_what_is_loaded_and_all_that_is_due_is_told(here: Host_) -> None:
    here.update(units=ACTIVE, loaded=OLD)
    here["table"] = whole(NEW, nvidia_fabricmanager=OLD, nvidia_settings=OLD)
    (problem,) = nvidia_driver.main(ARGS | REBOOTING)["problems"]
    assert problem == (
        f"driver {OLD} is in use by sglang-kimi.service (active) and is not replaced under it "
        f"(due: fabric manager {NEW}, nvidia-settings {NEW}, a reboot, since the kernel runs "
        f"driver {OLD}, {NEW} is installed): host by host, behind doctor and gates, it is done by: "
        f"{REBOOTING['roll_rebooting']}"
    )
    here["loaded"] = NEW  # now no reboot is due
    (problem,) = nvidia_driver.main(ARGS | REBOOTING)["problems"]
    assert problem.endswith(f"nvidia-settings {NEW}): host by host, behind doctor and gates, it is "
                            f"done by: {ARGS['roll']}")  # fmt: skip


OTHERS = {"nvidia-cuda-mps": "550.1-1", "libnvidia-nscq-570": "570.1-1"}
DATED = {"nvidia-installer-cleanup": "20220217+3~deb12u1", "nvidia-kernel-common": "20220217+3",
         "glx-alternative-nvidia": "1.2.2", "nvidia-support": "20151021+13"}  # fmt: skip


def test_only_the_drivers_own_packages_are_held_and_dated_ones_are_not_told(here: Host_) -> None:
    table = here["table"] = whole(NEW)
    table.there |= {**OTHERS, **DATED, "libnvidia-encode1": f"{NEW}-1"}
    found = nvidia_driver.main(dict(ARGS))
    assert table.held_ones == {*HELD, "libnvidia-encode1"}
    assert found["warnings"] == [
        f"beside driver {NEW} stand packages of others: libnvidia-nscq-570 570.1-1, "
        "nvidia-cuda-mps 550.1-1"
    ]
    again = nvidia_driver.main(dict(ARGS))
    assert (again["changed"], again["problems"]) == (False, [])


@pytest.mark.parametrize("hold", [True, False])
def test_a_driver_that_moves_keeps_the_holds_of_others(here: Host_, hold: bool) -> None:
    """An operator's own, of whatever version, and of another architecture."""
    here.update(table=whole(OLD), loaded=OLD)
    table, theirs = (
        here["table"],
        {"nvidia-cuda-mps", "nvidia-installer-cleanup", "libnvoptix1:i386"},
    )
    table.there |= {**OTHERS, **DATED, "libnvoptix1": "550.1-1"}
    table.held_ones = {*HELD, *theirs}
    assert nvidia_driver.main(ARGS | {"hold": hold})["problems"] == []
    assert table.held_ones == ({*HELD, *theirs} if hold else theirs)


def test_what_the_repository_does_not_hold_is_told_and_asked_of_nobody(
    here: Host_,
) -> None:
    table = here["table"] = whole(NEW, nvidia_persistenced=OLD)
    table.lacks = ("nvidia-persistenced",)
    found = nvidia_driver.main(dict(ARGS))
    assert (found["problems"], found["parts"], table.asked) == ([], [], [])
    assert table.held_ones == set(HELD) - {"nvidia-persistenced"}
    assert found["warnings"] == [
        f"beside driver {NEW} stand packages of others: nvidia-persistenced {OLD}-1"
    ]


def test_a_driver_that_moves_takes_along_what_nothing_of_it_depends_on(here: Host_) -> None:
    here.update(table=whole(OLD), loaded=OLD)
    found = nvidia_driver.main(dict(ARGS))
    assert here["table"].versions() == {f"{NEW}-1"} and found["warnings"] == []
    assert here["table"].asked[-1] == ["nvidia-settings"]
    here["loaded"] = NEW
    assert not nvidia_driver.main(dict(ARGS))["changed"]


def test_the_playbook_is_called_the_same_wherever_it_is_named() -> None:
    """upgrade_driver.yml puts the command as it was typed in the place of this one."""
    assert ROLL == PLAYBOOK
