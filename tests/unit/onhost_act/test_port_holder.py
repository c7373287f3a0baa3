"""Who listens on a port, told of a process whose connections come and go."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from opsctl.onhost import listeners


def test_a_connection_that_ends_while_it_is_looked_at_does_not_hide_its_process(
    tmp_path: Path,
) -> None:
    """A server that answers closes descriptors all the time: it was taken for "another process",
    which doctor told as a fault, and which would have kept its own restart from it."""
    for pid in ("7", "8"):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "fd" / "3").write_text("cannot be read as a link, as if it were gone")
    for number in range(4, 40):
        (tmp_path / "8" / "fd" / str(number)).symlink_to("socket:[1]")
    (tmp_path / "8" / "fd" / "9").unlink()
    (tmp_path / "8" / "fd" / "9").symlink_to("socket:[4711]")
    (tmp_path / "9").mkdir()  # it ended: it has no descriptors any more
    assert listeners.owner("4711", tmp_path) == "8"
    assert listeners.owner("4712", tmp_path) == ""


def test_the_ports_that_a_process_listens_on() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        inodes = listeners.sockets(Path("/proc/self"))
        places = {at for inode, at in listeners.of_host().items() if inode in inodes}
        assert places == {server.getsockname()}


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 4242 1 0 100 0
   1: 0100007F:7530 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  0 0 4243 1 0 100 0
   2: 0B004D0A:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 4244 1 0 100 0
"""
TCP6 = """\
  sl  local_address                         remote_address  st tx:rx tr:tm retrnsmt uid to inode
   0: 00000000000000000000000001000000:7530 0:0000 0A 0:0 0:0 0 0 0 4245 1 0 100 0
   1: 00000000000000000000000000000000:0016 0:0000 0A 0:0 0:0 0 0 0 4246 1 0 100 0
   2: 0000000000000000FFFF00000100007F:7531 0:0000 0A 0:0 0:0 0 0 0 4247 1 0 100 0
"""


def test_who_listens_where() -> None:
    """A connection is no listener."""
    assert listeners.listening(TCP) == {
        "4242": ("127.0.0.1", 30000),
        "4244": ("10.77.0.11", 30000),
    }
    assert listeners.listening(TCP6) == {
        "4245": ("::1", 30000),
        "4246": ("::", 22),
        "4247": ("127.0.0.1", 30001),
    }


@pytest.mark.parametrize(
    ("host", "address", "wanted"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "10.77.0.11", False),  # a router in front of an engine on loopback
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.1", "::", True),
        ("127.0.0.1", "::1", False),
        ("0.0.0.0", "10.77.0.11", True),
        ("0.0.0.0", "::1", False),
        ("::", "10.77.0.11", True),
        ("::1", "0.0.0.0", False),
        ("gpu-01", "10.77.0.11", True),  # which address that is, is not asked
    ],
)
def test_whom_a_server_would_meet(host: str, address: str, wanted: bool) -> None:
    assert listeners.meets(host, listeners.Place(address, 30000)) is wanted
