"""The first task of every playbook, run by the real ansible-playbook; no host is contacted."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opsctl.paths import share

EXAMPLE = share() / "inventory" / "example"
# A primary key of version 4 and nothing else: all that a fingerprint is made of.
KEY = "mDMEZVPxARYJKwYBBAHaRw8BAQdAAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
BOOK = """\
- hosts: all
  gather_facts: false
  tasks:
    - name: Describe
      opsctl_describe: {canary: "{{ opsctl_canary | default('') }}"}
      run_once: true
    - {name: Next, ansible.builtin.debug: {msg: touched}}
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "inventory")
    return tmp_path / "inventory"


def play(inventory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    book = inventory.parent / "book.yml"
    book.write_text(BOOK)
    plugins = str(share() / "playbooks" / "action_plugins")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    return subprocess.run(
        [program, "-i", str(inventory), str(book), *more],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_ACTION_PLUGINS": plugins},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_example_is_right(inventory: Path) -> None:
    done = play(inventory, "-v")
    assert done.returncode == 0, done.stdout
    assert "services:\n            - kimi" in done.stdout


def test_a_typo_is_told_with_all_that_is_needed_and_nothing_is_touched(inventory: Path) -> None:
    file = inventory / "group_vars" / "kimi.yml"
    file.write_text(file.read_text().replace("hicache-ratio: 4.0", "hicache-ratoi: 4.0"))
    done = play(inventory, "--check")
    assert done.returncode == 2
    for part in ("group_vars/kimi.yml:", "host gpu-01", "service kimi", "hicache-ratio"):
        assert part in done.stdout, done.stdout
    assert "TASK [Next]" not in done.stdout


def test_a_wrong_value_of_a_roles_variable_is_told_with_its_host(inventory: Path) -> None:
    file = inventory / "host_vars" / "gpu-02.yml"
    file.write_text(file.read_text() + 'host_open_files: many\nengine_python: "{{ nothing }}"\n')
    undefined = play(inventory)
    assert undefined.returncode == 2
    told = " ".join(undefined.stdout.replace("''", "'").split())  # as 2.18 writes YAML
    assert "host gpu-02, key engine_python: 'nothing' is undefined" in told
    file.write_text(file.read_text().replace('"{{ nothing }}"', "python3.11"))
    done = play(inventory)
    assert done.returncode == 2
    assert "host gpu-02, key host_open_files: " in done.stdout
    assert "must be a whole number" in done.stdout
    assert "gpu-01" not in done.stdout.partition("fatal:")[2].partition("msg")[2].split("RECAP")[0]
    assert "TASK [Next]" not in done.stdout


def test_misspelt_and_contradicting_variables_of_roles_are_told(inventory: Path) -> None:
    file = inventory / "host_vars" / "gpu-02.yml"
    file.write_text(
        file.read_text()
        + "host_tuning_swapiness: 10\nhost_tuning_memlock: infinite\nhost_rack: r1\n"
        + 'host_folders: {/etc/opsctl: "999"}\n'
    )
    done = play(inventory, "-e", "opsctl_canary=gpu-02")
    assert done.returncode == 2
    for part in (
        "key host_tuning_swapiness: is no variable of any role: nothing reads it; "
        "did you mean host_tuning_swappiness?",
        "host gpu-02, key host_tuning_memlock: must be a whole number of 0 or more, or unlimited",
        "host gpu-02, key host_folders: must give /etc/opsctl its mode in octal digits",
    ):
        assert part in done.stdout, done.stdout
    for none in ("TASK [Next]", "Traceback", "host_rack", "opsctl_canary:"):
        assert none not in done.stdout


def test_a_driver_or_toolkit_that_the_engine_cannot_use_is_told_by_the_playbook_and_by_validate(
    inventory: Path,
) -> None:
    file = inventory / "host_vars" / "gpu-02.yml"
    (inventory.parent / "key.gpg").write_bytes(base64.b64decode(KEY))
    file.write_text(
        file.read_text() + 'nvidia_driver_branch: "535"\ncuda_toolkits: ["11.8"]\n'
        f"nvidia_driver_repository: {{key: {inventory.parent / 'key.gpg'}}}\n"
    )
    validated = subprocess.run(
        [sys.executable, "-m", "opsctl", "config", "validate", "-i", str(inventory)],
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    played = play(inventory)
    assert (validated.returncode, played.returncode) == (2, 2)
    for part in (
        "host gpu-02, key nvidia_driver_branch: service kimi: SGLang 0.5.9 needs NVIDIA driver "
        "550.54.14 or newer, 535 is asked for. Ask for nvidia_driver_branch 550 or newer",
        "host gpu-02, key cuda_toolkits: service kimi: torch of SGLang 0.5.9 is built for CUDA 12",
    ):
        assert part in played.stdout and part in validated.stderr
    assert "TASK [Next]" not in played.stdout and "error: host gpu-01" not in validated.stderr


def test_hosts_without_any_service_are_an_error(inventory: Path) -> None:
    (inventory / "group_vars" / "kimi.yml").unlink()
    (inventory / "host_vars" / "gpu-02.yml").unlink()
    done = play(inventory)
    assert done.returncode == 2
    assert "no service is described for gpu-01, gpu-02" in done.stdout


@pytest.mark.parametrize("limit", ["", ","])
def test_an_empty_limit_is_not_the_whole_fleet(inventory: Path, limit: str) -> None:
    done = play(inventory, "--limit", limit)
    assert done.returncode != 0 and "names no host" in done.stdout + done.stderr
    assert "touched" not in done.stdout


@pytest.mark.parametrize("limit", ["gpu-01,gpu-11", "kimi:!gpu-11", "gpu-01:!rack*"])
def test_a_limit_with_an_unknown_name_touches_nothing(inventory: Path, limit: str) -> None:
    done = play(inventory, "--limit", limit)
    assert done.returncode == 2 and "touched" not in done.stdout.replace("nothing was touched", "")
    unknown = "rack*" if "rack" in limit else "gpu-11"
    assert f"no host or group of the inventory is called {unknown}; nothing was" in done.stdout
    assert "=> {" not in done.stdout  # its message stands on lines of its own
    assert unknown == "rack*" or "did you mean gpu-01?" in done.stdout


@pytest.mark.parametrize("limit", ["gpu-01", "kimi:!gpu-02", "gpu-0?", "~gpu-0.", "kimi[0]"])
def test_a_limit_of_known_names_is_followed(inventory: Path, limit: str) -> None:
    done = play(inventory, "--limit", limit)
    assert done.returncode == 0, done.stdout


def test_a_limit_of_a_file_is_judged_too(inventory: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("gpu-01\ngpu-11\n")
    done = play(inventory, "--limit", f"@{tmp_path / 'hosts.txt'}")
    assert done.returncode == 2 and "is called gpu-11" in done.stdout


def test_a_canary_that_is_not_selected_is_told_before_anything_is_staged(inventory: Path) -> None:
    done = play(inventory, "--limit", "gpu-01", "-e", "opsctl_canary=gpu-02")
    assert done.returncode == 2
    assert "the canary gpu-02 is not among the selected hosts: gpu-01" in done.stdout
