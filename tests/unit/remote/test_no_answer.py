"""A frozen host: its kernel takes connections, and nothing behind it answers."""

import socket
import subprocess

import pytest

from opsctl.errors import Unreachable
from opsctl.remote.connection import open_connection
from opsctl.remote.target import Target


def test_a_frozen_host_is_told_in_our_words(tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, blob = key.with_suffix(".pub").read_text().split()[:2]
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{port} {kind} {blob}\n")
        target = Target(
            "h1", "127.0.0.1", port, agent=False, known_hosts=(str(known),), connect_timeout=1
        )
        with pytest.raises(Unreachable) as told:
            open_connection(target)
    assert told.value.message == (
        f"127.0.0.1 port {port}: connected, but the host does not answer (frozen, or overloaded?) "
        "within 1 s"
    )


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1", "127.0.0.1 port {port}: Connection refused"),
        ("no-such-host.invalid", "the name no-such-host.invalid cannot be resolved"),
    ],
)
def test_a_host_that_is_not_there_is_not_told_as_one_whose_key_is_not_known(address, words):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unreachable) as told:
        open_connection(Target("h1", address, port, agent=False, connect_timeout=1))
    assert words.format(port=port) in told.value.message
    assert told.value.step == "connect"


def test_one_that_is_there_is_told_as_one_whose_key_is_not_known():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(Unreachable) as told:
            open_connection(Target("h1", "127.0.0.1", port, agent=False, connect_timeout=1))
    assert told.value.message == f"the host key of [127.0.0.1]:{port} is not known"


def test_a_jump_that_is_not_there_is_not_told_as_one_whose_key_is_not_known():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    jump = Target("bastion", "127.0.0.1", port, agent=False, connect_timeout=1)
    with pytest.raises(Unreachable) as told:
        open_connection(Target("h1", "127.0.0.1", 22, agent=False, jumps=(jump,)))
    assert told.value.message == (
        f"127.0.0.1 port {port}: Connection refused (jump bastion), so h1 was not reached"
    )
    assert told.value.step == "jump"


def test_a_jump_that_is_there_is_told_as_one_whose_key_is_not_known():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        jump = Target("bastion", "127.0.0.1", port, agent=False, connect_timeout=1)
        with pytest.raises(Unreachable) as told:
            open_connection(Target("h1", "127.0.0.1", 22, agent=False, jumps=(jump,)))
    assert told.value.message == f"the host key of [127.0.0.1]:{port} is not known (jump bastion)"
