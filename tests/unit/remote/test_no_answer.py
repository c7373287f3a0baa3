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
