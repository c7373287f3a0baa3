"""The program of the role host_tuning: its files, and what it puts back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsctl.ansible.host_tuning import tuning_args
from opsctl.ansible.target import host_tuning
from opsctl.ansible.target.converge import Refused


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose settings are files of this folder."""
    for name in ("SYSCTL", "LIMITS", "TMPFILES", "STATE", "THP"):
        monkeypatch.setattr(host_tuning, name, str(tmp_path / name))
    monkeypatch.setattr(host_tuning, "_path", lambda key: str(tmp_path / Path(key).name))
    monkeypatch.setattr("os.chown", lambda *_: None)
    monkeypatch.setattr("opsctl.ansible.target.converge._state", _state)
    (tmp_path / "THP").write_text("always [madvise] never\n")
    for key, value in {"vm.swappiness": "60", "kernel.numa_balancing": "1"}.items():
        (tmp_path / key).write_text(value + "\n")
    return tmp_path


def _state(path: str) -> str:
    return "file root:root 0644\n" if Path(path).exists() else ""


def run(check: bool = False, **settings: Any) -> dict[str, Any]:
    return host_tuning.main(tuning_args(settings) | {"check": check})


def test_nothing_is_touched_that_was_not_asked_for(here: Path) -> None:
    before = sorted(here.iterdir())
    found = run(memlock="", swappiness="", sysctl={}, numa_balancing="", shm_size="")
    assert found == {"changed": False, "diff": [], "problems": []}
    assert sorted(here.iterdir()) == before


def test_settings_are_applied_kept_and_put_back(here: Path) -> None:
    asked = {"swappiness": "10", "numa_balancing": "false", "nofile": "1048576"}
    assert run(check=True, **asked)["changed"]
    assert (here / "vm.swappiness").read_text() == "60\n" and not (here / "SYSCTL").exists()
    assert run(**asked)["problems"] == []
    assert (here / "vm.swappiness").read_text() == "10\n"
    text = (here / "SYSCTL").read_text()
    assert "kernel.numa_balancing = 0\nvm.swappiness = 10\n" in text
    assert "root - nofile 1048576" in (here / "LIMITS").read_text()
    assert not run(**asked)["changed"]
    assert run(swappiness=10)["changed"]  # the others have gone away
    assert (here / "kernel.numa_balancing").read_text() == "1\n"
    assert not (here / "LIMITS").exists()
    assert json.loads((here / "STATE").read_text()) == {"vm.swappiness": "60"}
    assert run()["changed"]
    assert (here / "vm.swappiness").read_text() == "60\n" and not (here / "SYSCTL").exists()
    assert not run()["changed"]


def test_what_the_kernel_does_not_take_is_told_and_what_was_done_is_remembered(here: Path) -> None:
    (here / "vm.max_map_count").symlink_to("/proc/version")  # readable, and never written
    found = run(swappiness="10", sysctl={"vm.max_map_count": 1})
    assert "vm.max_map_count cannot be set to 1 now" in found["problems"][0]
    assert json.loads((here / "STATE").read_text())["vm.swappiness"] == "60"
    found = run(sysctl={"vm.swapiness": 1})
    assert "the kernel has no setting vm.swapiness" in found["problems"][0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"huge_pages": "999999999"}, "host_tuning_huge_pages asks for"),
        ({"shm_size": "900TiB"}, "host_tuning_shm_size asks for"),
        ({"shm_size": "half"}, "write it like 64GiB"),
        ({"swappiness": 1, "sysctl": {"vm/swappiness": 2}}, "a variable of its own sets too"),
    ],
)
def test_what_is_refused(here: Path, settings: dict[str, Any], words: str) -> None:
    (here / "vm.nr_hugepages").write_text("0\n")
    assert words in run(**settings)["problems"][0]


def test_sizes_and_words() -> None:
    assert host_tuning.size_of("64GiB") == host_tuning.size_of("64G") == 64 << 30
    assert host_tuning.size_of("4096") == 4096
    with pytest.raises(Refused):
        host_tuning.size_of("64GB")
    assert host_tuning.selected("always [madvise] never") == "madvise"
    assert host_tuning.selected("4096\t131072\t6291456") == "4096 131072 6291456"


def test_ansible_core_2_18_makes_text_of_what_a_template_gives() -> None:
    said = tuning_args({"numa_balancing": "False", "swappiness": "", "sysctl": {}, "nofile": None})
    assert said["settings"]["numa_balancing"] is False
    assert (said["settings"]["swappiness"], said["settings"]["nofile"]) == (None, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nofile": "2147483584"}, "host_tuning_nofile asks for 2147483584 open files"),
        ({"swappiness": "ten"}, "vm.swappiness takes a whole number: 'ten' is none"),
        ({"huge_pages": "some"}, "vm.nr_hugepages takes a whole number"),
        ({"nofile": "many"}, "host_tuning_nofile takes a whole number"),
    ],
)
def test_what_would_lock_logins_out_or_is_no_number_is_refused(
    here: Path, settings: dict[str, str], words: str
) -> None:
    if int(Path("/proc/sys/fs/nr_open").read_text()) >= 2147483584 and "2147483584" in words:
        pytest.skip("this kernel allows as many")
    before = sorted(here.iterdir())
    found = run(memlock="unlimited", **settings)
    assert [words in problem for problem in found["problems"]] == [True]
    assert sorted(here.iterdir()) == before
