"""This machine as a host (ansible_connection=local)."""

from __future__ import annotations

import contextlib
import getpass
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

from opsctl.remote import sanitise
from opsctl.remote.bounded import Lines, Tail
from opsctl.remote.host import Answer, CommandFailed, Silent, until_closed
from opsctl.remote.start import Start
from opsctl.remote.target import Target

_MAX_ERR = 256 << 10


class LocalHost:
    """Obeys remote.host.Host and Tunnels."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self.target = target

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        sudo: bool = True,
    ) -> Answer:
        start = self._start(sudo)
        try:
            done = subprocess.run(
                start.argv(argv), input=stdin, capture_output=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            raise Silent(f"`{argv[0]}` did not end within {timeout:g} s", host=self.name) from None
        err = Tail(_MAX_ERR)
        err.feed(start.err(done.stderr))
        out = sanitise.text(start.out(done.stdout), line=len(done.stdout) + 1)
        self._refuse(start, done.returncode)
        return Answer(done.returncode, out, err.text(), err.cut)

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        start = self._start(sudo)
        command = start.argv(list(argv) if stdin else until_closed(argv))
        lines = Lines(self.name, argv)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(stdin)
            process.stdin.flush()
            last = time.monotonic()
            while True:
                ready, _, _ = select.select([process.stdout], [], [], 1.0)
                if ready:
                    data = os.read(process.stdout.fileno(), 65536)
                    if not data:
                        break
                    last = time.monotonic()
                    yield from lines.feed(start.out(data))
                elif time.monotonic() - last > idle:
                    raise Silent(f"`{argv[0]}` said nothing for {idle:g} s", host=self.name)
            yield from lines.rest()
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.returncode is None:
                process.kill()
                process.wait()
            process.stdout.close()
        self._refuse(start, process.returncode)
        if process.returncode != 0:
            raise CommandFailed(self.name, argv, Answer(process.returncode, ""))

    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        return socket.create_connection((address, port), timeout)

    def close(self) -> None:
        return

    def _start(self, sudo: bool) -> Start:
        """sudo asks no password here: its words would go to the operator's own terminal."""
        become = sudo and os.geteuid() != 0
        return Start(self.name, getpass.getuser(), sudo=self.target.sudo if become else "")

    @staticmethod
    def _refuse(start: Start, rc: int) -> None:
        if refusal := start.refusal(rc):
            refusal.hint = "run opsctl as root here, or allow NOPASSWD in sudoers"
            raise refusal
