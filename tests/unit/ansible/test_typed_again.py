"""The command of a `next:` is the one that was typed, without what may be a secret."""

from __future__ import annotations

import shlex

import pytest

from opsctl.ansible.typed import again, beside

PLAY = "upgrade_driver.yml"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            "ansible-playbook -i inv upgrade_driver.yml --limit h1,h2 -K -e opsctl_canary=h",
            "ansible-playbook -i inv upgrade_driver.yml --limit h1,h2 -K -e opsctl_canary=h",
        ),
        (
            "/opt/venv/bin/ansible-playbook --check -iinv upgrade_driver.yml -D",
            "ansible-playbook -iinv upgrade_driver.yml",
        ),
        (
            "ansible-playbook upgrade_driver.yml --extra-vars=@more.yml "
            "-e 'opsctl_reason=\"the CVE\" nvidia_driver_allow_reboot=true'",
            "ansible-playbook upgrade_driver.yml -e @more.yml "
            "-e 'opsctl_reason=\"the CVE\" nvidia_driver_allow_reboot=true'",
        ),
        (
            'ansible-playbook upgrade_driver.yml -e \'{"nvidia_driver_allow_reboot": true, '
            '"nvidia_driver_version": "580.95.05", "ansible_become_password": "hunter2"}\'',
            "ansible-playbook upgrade_driver.yml "
            "-e 'nvidia_driver_allow_reboot=true nvidia_driver_version=580.95.05' "
            "(and -e ansible_become_password, as before)",
        ),
        (
            "ansible-playbook upgrade_driver.yml -eansible_password=hunter2 "
            "-e nvidia_driver_repository=http://me:hunter2@m/",
            "ansible-playbook upgrade_driver.yml "
            "(and -e ansible_password, nvidia_driver_repository, as before)",
        ),
        (
            "ansible-playbook upgrade_driver.yml -e '{broken: hunter2'",
            "ansible-playbook upgrade_driver.yml (and -e …, as before)",
        ),
        ("python -m something upgrade_driver.yml", ""),
        ("ansible-playbook site.yml", ""),
    ],
)
def test_the_same_command_again(argv: str, told: str) -> None:
    found = again(shlex.split(argv), PLAY)
    assert found == told and "hunter2" not in found


def test_nothing_is_typed_without_a_command() -> None:
    assert again([], PLAY) == ""


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            "ansible-playbook -i inv playbooks/deploy.yml --limit h1 -K --check "
            "-e nvidia_driver_allow_reboot=true -e service_override=hunter2",
            "ansible-playbook -i inv playbooks/upgrade_driver.yml --limit h1 -K "
            "-e nvidia_driver_allow_reboot=true",
        ),
        (
            "ansible-playbook deploy.yml -e ansible_become_password=hunter2",
            "ansible-playbook upgrade_driver.yml (and -e ansible_become_password, as before)",
        ),
        ("ansible-playbook site.yml", ""),
        ("pytest deploy.yml", ""),
    ],
)
def test_another_playbook_is_typed_as_this_one_was(argv: str, told: str) -> None:
    assert beside(shlex.split(argv), "deploy.yml", PLAY) == told
