"""Who listens on a port, told of a process whose connections come and go."""

from __future__ import annotations

import socket
from pathlib import Path

from opsctl.onhost import preflight


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
    assert preflight._owner("4711", tmp_path) == "8"
    assert preflight._owner("4712", tmp_path) == ""


def test_the_ports_that_a_process_listens_on() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        inodes = preflight.sockets(Path("/proc/self"))
        ports = {port for inode, port in preflight.listeners().items() if inode in inodes}
        assert ports == {server.getsockname()[1]}
