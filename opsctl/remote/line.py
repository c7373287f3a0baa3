"""One open connection to a host, through its jumps, with its pulse."""

from __future__ import annotations

import time
from typing import Any

import paramiko

from opsctl.errors import Unreachable
from opsctl.remote.connection import login_limit, open_connection
from opsctl.remote.pulse import Pulse
from opsctl.remote.target import Target


class Line:
    def __init__(self, target: Target) -> None:
        """Opens it. Raises Unreachable."""
        self._target = target
        self._chain = open_connection(target)
        self._pulse: Pulse | None = None

    @property
    def transport(self) -> Any:
        return self._chain[-1].transport

    @property
    def alive(self) -> bool:
        return bool(self.transport.is_active())

    @property
    def silent(self) -> bool:
        """Whether it was ended because the host gave no sign of life."""
        return self._pulse is not None and self._pulse.dead

    def session(self, deadline: float) -> Any:
        """A new session. The first one waits for all that a login runs on the host (PAM, messages
        of the day). Raises paramiko.ChannelException where sshd allows no more, Unreachable."""
        limit = login_limit(self._target)
        within = max(1.0, min(limit, deadline - time.monotonic()))
        try:
            channel = self.transport.open_session(timeout=within)
        except paramiko.ChannelException:
            raise
        except paramiko.SSHException as error:
            if not self.alive or self._pulse is not None:
                raise
            raise Unreachable(
                f"logged in, but the host opens no session within {within:.0f} s (a slow message "
                "of the day, PAM?)",
                host=self._target.name,
                step="session",
                hint="see what a login runs there: /etc/update-motd.d, /etc/pam.d/sshd; or raise "
                "ansible_timeout",
            ) from error
        self.watch()
        return channel

    def watch(self) -> None:
        """Signs of life are asked for from now on: until its first channel is open, sshd is busy
        with the login and answers nothing."""
        if self._pulse is None:
            interval, count = self._target.alive_interval, self._target.alive_count
            self._pulse = Pulse(self.transport, interval, count)

    def close(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
        for connection in reversed(self._chain):
            connection.close()
