"""Notices a host that is gone: paramiko itself believes in a connection for as long as TCP does."""

from __future__ import annotations

import threading
import time
from typing import Any


class Pulse:
    """Asks for a sign of life every `interval` seconds; ends the connection after `count` in vain.

    Every wait on the connection, tunnels included, then ends at once. Two threads: the one that
    asks may itself be stuck in a write to a dead socket.
    """

    def __init__(self, transport: Any, interval: float, count: int) -> None:
        self._transport = transport
        self._interval, self._limit = interval, interval * count
        self._heard = time.monotonic()
        self._over = threading.Event()
        self.dead = False
        for work in (self._ask, self._watch):
            threading.Thread(target=work, daemon=True, name="opsctl-pulse").start()

    def stop(self) -> None:
        self._over.set()

    def _ask(self) -> None:
        while not self._over.wait(self._interval):
            try:
                # sshd does not know this request, and says so: that is the sign of life.
                self._transport.global_request("keepalive@openssh.com", wait=True)
            except Exception:  # the transport ended under it
                return
            if not self._transport.is_active():
                return
            self._heard = time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._interval)):
            if not self._transport.is_active():
                return
            if time.monotonic() - self._heard > self._limit + self._interval:
                self.dead = True
                self._transport.close()
                return
