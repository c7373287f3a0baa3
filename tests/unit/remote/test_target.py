"""Targets from real `ssh -G` answers (OpenSSH 9.2, in ssh_g; lists of algorithms left out)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsctl.errors import SpecError
from opsctl.remote import openssh
from opsctl.remote.target import Target, resolve

ANSWERS = Path(__file__).parent / "ssh_g"


def answered(arguments: list[str]) -> str:
    return (ANSWERS / f"{arguments[-1]}.txt").read_text()


def target(name: str, **variables: Any) -> Target:
    return resolve(name, variables, answered)


def test_a_host_with_all_its_options() -> None:
    found = target("gpu1")
    home = str(Path.home())
    assert (found.address, found.port, found.user) == ("192.0.2.11", 22, "root")
    assert found.keys == (f"{home}/.ssh/fleet", "/etc/opsctl/keys/root@192.0.2.11")
    assert found.identities_only
    assert found.known_hosts == (
        "/home/ops/.ssh/known_hosts",
        "/home/ops/.ssh/known_hosts_fleet",
        "/etc/ssh/ssh_known_hosts",
    )
    assert found.key_names == ("gpu1.rack",)
    assert (found.connect_timeout, found.alive_interval, found.alive_count) == (7.0, 4.0, 2)


def test_limits_of_ours_where_openssh_waits_for_ever() -> None:
    found = target("bastion")
    assert (found.connect_timeout, found.alive_interval, found.alive_count) == (10.0, 5.0, 3)


@pytest.mark.parametrize(
    ("interval", "count", "expected"),
    [("300", "3", (5.0, 3)), ("15", "3", (15.0, 3)), ("0", "3", (5.0, 3)), ("5", "0", (5.0, 3))],
)
def test_keepalives(interval: str, count: str, expected: tuple[float, int]) -> None:
    options = {"serveraliveinterval": [interval], "serveralivecountmax": [count]}
    assert openssh.keepalive(options) == expected


def test_jumps_in_order_each_with_its_own_options() -> None:
    asked: list[list[str]] = []

    def ask(arguments: list[str]) -> str:
        asked.append(arguments)
        return answered(arguments)

    found = resolve("inner", {"ansible_ssh_common_args": "-F cfg -o ConnectTimeout=3"}, ask)
    assert found.key_names == ("[10.0.0.5]:2222", "10.0.0.5")
    assert [jump.name for jump in found.jumps] == ["bastion", "gpu1"]
    assert found.jumps[1].address == "192.0.2.11"
    # As in OpenSSH, a jump takes its target's -F and nothing else.
    assert asked == [
        ["-F", "cfg", "-o", "ConnectTimeout=3", "--", "inner"],
        ["-F", "cfg", "-l", "ops", "-p", "2200", "--", "bastion"],
        ["-F", "cfg", "--", "gpu1"],
    ]


def test_a_jump_that_jumps_over_itself_ends() -> None:
    def ask(arguments: list[str]) -> str:
        return "user root\nhostname loop\nport 22\nproxyjump loop\n"

    with pytest.raises(SpecError, match="more than 8 jumps"):
        resolve("loop", {}, ask)


def test_a_proxy_command_with_its_tokens() -> None:
    assert target("behind").proxy_command == "nc -x proxy:1080 behind 22"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("token", ["PKCS11Provider", "BindAddress", "host token", "ssh-add -s"]),
        ("krb", ["PreferredAuthentications", "gssapi-with-mic", "publickey"]),
        ("agent", ["IdentityAgent", "export SSH_AUTH_SOCK=/home/ops/agent.sock"]),
    ],
)
def test_what_cannot_be_honoured_is_named(name: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        target(name)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"ansible_connection": "docker"}, "ansible_connection"),
        ({"ansible_become_method": "su"}, "ansible_become_method"),
        ({"ansible_become_user": "sglang"}, "ansible_become_user"),
        ({"ansible_sudo_user": "sglang"}, "ansible_become_user"),
        ({"ansible_private_key": "s3cret"}, "ansible_private_key"),
        ({"ansible_ssh_common_args": "-o 'ProxyCommand=x"}, "ansible_ssh_common_args"),
        ({"ansible_host": "-oProxyCommand=evil"}, "dash"),
        ({"ansible_user": 'a"b'}, "ansible_user"),
    ],
)
def test_variables_that_are_refused(variables: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve("bastion", variables, answered)
    assert word in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_ansible_variables_come_before_the_configuration() -> None:
    variables = {
        "ansible_host": "192.0.2.9",
        "ansible_port": "2022",
        "ansible_user": "deploy",
        "ansible_ssh_private_key_file": "/keys/a b",
        "ansible_ssh_args": "-C",
        "ansible_ssh_common_args": "-F /x",
        "ansible_ssh_extra_args": "-J h1",
        "ansible_timeout": "30",
    }
    assert openssh.arguments("h", variables) == [
        "-C",
        "-o", 'Port="2022"',
        "-o", 'User="deploy"',
        "-o", 'IdentityFile="/keys/a b"',
        "-o", 'ConnectTimeout="30"',
        "-F", "/x",
        "-J", "h1",
        "--", "192.0.2.9",
    ]  # fmt: skip


def test_become() -> None:
    def ask(arguments: list[str]) -> str:
        return "user deploy\nhostname h\nport 22\n"

    assert resolve("h", {}, ask).become
    with pytest.raises(SpecError, match=r"host h, key ansible_become: is off, and deploy is not"):
        resolve("h", {"ansible_become": "no"}, ask)
    assert not resolve("h", {"ansible_become": True}, lambda _: "user root\n").become
    found = resolve("h", {"ansible_become_pass": "s3cret", "ansible_become_exe": "/x/sudo"}, ask)
    assert found.become_password is not None and found.sudo == "/x/sudo"
    assert found.become_password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(found)


def test_a_password_that_was_asked_for_comes_after_the_inventory() -> None:
    typed = {"ansible_become_password_asked": "typed", "ansible_password_asked": "typed"}
    found = target("bastion", **typed, ansible_become_pass="said")
    assert found.become_password is not None and found.password is not None
    assert found.become_password.get_secret_value() == "said"
    assert found.password.get_secret_value() == "typed"


def test_no_public_key_is_needed_where_there_is_a_password() -> None:
    with pytest.raises(SpecError, match="there is no ansible_password"):
        target("krb")
    assert target("krb", ansible_ssh_pass="s3cret").password is not None


def test_local() -> None:
    found = resolve("me", {"ansible_connection": "local"}, answered)
    assert found.local


def test_the_interpreter() -> None:
    assert target("bastion", ansible_python_interpreter="/usr/bin/python3.11").python
    assert target("bastion", ansible_python_interpreter="auto_silent").python == ""


def test_the_installed_openssh_is_understood(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  HostName 192.0.2.1\n  ProxyJump b\nHost b\n  Port 2200\n")
    variables = {
        "ansible_ssh_common_args": f"-F {config}",
        "ansible_ssh_private_key_file": "/k e/y",
    }
    found = resolve("a", variables)
    assert found.address == "192.0.2.1"
    assert found.keys == ("/k e/y",)
    assert [(jump.address, jump.port) for jump in found.jumps] == [("b", 2200)]


def test_what_an_operator_types_has_the_inventorys_own_files() -> None:
    args = "-F 'my cfg' -o ProxyCommand='nc --password X' -oUserKnownHostsFile=kh"
    args += ' -o IdentityFile="k"'
    found = target("gpu1", ansible_ssh_common_args=args, ansible_ssh_private_key_file="/k/id")
    assert found.by_hand == (
        "ssh -i /k/id -F 'my cfg' -o UserKnownHostsFile=kh -i k root@192.0.2.11"
    )
    assert target("gpu1").by_hand == "ssh root@192.0.2.11"
