"""A host over SSH: one connection, opened when first needed, shared by up to eight commands.

Imported lazily (see remote.connect): fabric and paramiko cost 0.2 s.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import paramiko

from opsctl.errors import OpsctlError, Unreachable
from opsctl.remote import sanitise
from opsctl.remote.bounded import Lines, Tail, too_much
from opsctl.remote.connection import CHANNEL_TIMEOUT, unreachable
from opsctl.remote.host import Answer, CommandFailed, Silent, until_closed
from opsctl.remote.line import Line
from opsctl.remote.start import Start
from opsctl.remote.target import Target

MAX_SESSIONS = 8  # at once on one connection; sshd's own default (MaxSessions) is 10
MAX_OUT = 32 << 20  # bytes of stdout that a command may say
MAX_ERR = 256 << 10  # bytes of stderr that are kept
_CHUNK = 64 << 10
_LOOK = 1.0  # s between two looks at the clock while nothing comes
_PATIENCE = 3.0  # s until a session that sshd refuses is asked of another connection
_STUCK = 10.0  # s of silence after which what sudo has said counts as a question


class SshHost:
    """Obeys remote.host.Host and Tunnels. Safe to use from several threads."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self.target = target
        self._lines: list[Line] = []  # more than one only where sshd's MaxSessions demands it
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_SESSIONS)
        self._wrong: OpsctlError | None = None  # sudo's refusal of the password: never asked again

    # ------------------------------------------------------------ commands
    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        sudo: bool = True,
    ) -> Answer:
        deadline = time.monotonic() + timeout
        said = Said(self._start(sudo))
        with self._started(argv, said, deadline) as channel:
            _send(channel, stdin, end=True)
            while _wait(channel):
                said.read(channel)
                if max(len(said.out), said.start.noise) > MAX_OUT:
                    raise too_much(self.name, argv, f"{MAX_OUT >> 20} MiB")
                if time.monotonic() > deadline:
                    raise self._silent(argv, f"did not end within {timeout:g} s")
            said.read(channel)
            rc = self._status(channel, argv)
        if refusal := said.start.refusal(rc):
            raise refusal
        out = sanitise.text(bytes(said.out), line=MAX_OUT)
        return Answer(rc, out, said.err.text(), said.err.cut)

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        lines, said = Lines(self.name, argv), Said(self._start(sudo))
        command = list(argv) if stdin else until_closed(argv)
        deadline = time.monotonic() + max(idle, CHANNEL_TIMEOUT)
        with self._started(command, said, deadline) as channel:
            channel.settimeout(max(idle, CHANNEL_TIMEOUT))
            _send(channel, stdin, end=False)
            last = time.monotonic()
            going = True
            while going:
                going = _wait(channel)
                said.read(channel)
                if said.out:
                    last = time.monotonic()
                out, said.out = bytes(said.out), bytearray()
                yield from lines.feed(out)
                if said.start.noise > MAX_OUT:
                    raise too_much(self.name, argv, f"{MAX_OUT >> 20} MiB")
                if time.monotonic() - last > idle:
                    raise self._silent(argv, f"said nothing for {idle:g} s")
            yield from lines.rest()
            rc = self._status(channel, argv)
        if refusal := said.start.refusal(rc):
            raise refusal
        if rc != 0:
            raise CommandFailed(self.name, argv, Answer(rc, "", said.err.text(), said.err.cut))

    # ------------------------------------------------------------ forwarding
    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        line = self._line()
        try:
            channel = line.transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=timeout
            )
        except paramiko.ChannelException as error:
            if error.code == 1:  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
                raise PermissionError(f"{self.name} forbids TCP forwarding") from None
            raise ConnectionRefusedError(
                f"{self.name}: nobody listens on {address}:{port}"
            ) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost("tunnel", error) from error
        line.watch()
        return channel

    def close(self) -> None:
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines = []

    # ------------------------------------------------------------ the connection
    def _line(self) -> Line:
        """A line that is open; the first one unless sshd has demanded more."""
        with self._lock:
            if not any(line.alive for line in self._lines):
                for line in self._lines:
                    line.close()
                self._lines = [Line(self.target)]
            return next(line for line in self._lines if line.alive)

    @contextmanager
    def _started(self, argv: Sequence[str], said: Said, deadline: float) -> Iterator[Any]:
        """The channel of a command that now runs, past sudo's password. Closed at the end."""
        if not self._places.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._silent(argv, f"waited in vain: {MAX_SESSIONS} commands are running there")
        channel = None
        try:
            channel = self._session(deadline)
            channel.settimeout(max(0.1, deadline - time.monotonic()))
            channel.exec_command(said.start.command(argv))
            if said.start.may_ask:
                self._answer(channel, said, deadline)
            yield channel
        except TimeoutError as error:
            raise self._silent(argv, "does not take its input") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(_short(argv), error) from error
        finally:
            if channel is not None:
                # On a connection that is lost there is nothing to close, and the error that is
                # on its way to the caller says more than this one would.
                with suppress(paramiko.SSHException, OSError, EOFError):
                    channel.close()
            self._places.release()

    def _session(self, deadline: float) -> Any:
        """A new session; sshd frees the place of a closed one only after a moment. Where it allows
        fewer at once than are needed (MaxSessions), another connection is opened."""
        patience = min(deadline, time.monotonic() + _PATIENCE)
        while True:
            self._line()
            for line in [line for line in self._lines if line.alive]:
                with suppress(paramiko.ChannelException):
                    return _watched(line.session(deadline))
            if time.monotonic() > patience:
                break
            time.sleep(0.2)
        line = Line(self.target)
        try:
            channel = _watched(line.session(deadline))
        except paramiko.ChannelException as error:
            line.close()
            raise Unreachable(
                f"it allows no further session on this connection ({error.text})",
                host=self.name,
                step="session",
                hint="raise MaxSessions in its sshd_config",
            ) from None
        except BaseException:
            line.close()
            raise
        with self._lock:  # only now: others would have filled it before our session was open
            self._lines.append(line)
        return channel

    def _start(self, sudo: bool) -> Start:
        become = sudo and self.target.become and self.target.user != "root"
        password = self.target.become_password is not None
        if become and password and self._wrong is not None:
            raise self._wrong
        program = self.target.sudo if become else ""
        return Start(self.name, self.target.user, sudo=program, password=become and password)

    def _answer(self, channel: Any, said: Said, deadline: float) -> None:
        """Gives sudo its password when it asks for it, and only then: where a rule NOPASSWD makes
        it not ask, a password sent unasked would reach the command itself."""
        assert self.target.become_password is not None
        password = self.target.become_password.get_secret_value().encode()
        quiet = time.monotonic()
        while _wait(channel) and time.monotonic() < deadline:
            if said.read(channel):
                quiet = time.monotonic()
            if said.start.begun:
                return
            try:
                if said.start.asked():
                    channel.sendall(password + b"\n")
            except OpsctlError as error:
                self._wrong = error
                raise
            if said.start.waits() and time.monotonic() - quiet > _STUCK:
                raise said.start.stuck()
        said.read(channel)
        if not said.start.begun and not channel.exit_status_ready():
            raise said.start.stuck()  # the input is not for sudo

    # ------------------------------------------------------------ what went wrong
    def _status(self, channel: Any, argv: Sequence[str]) -> int:
        rc = int(channel.recv_exit_status())
        if rc == -1 and not channel.get_transport().is_active():
            raise self._lost(_short(argv), None)
        return rc

    def _lost(self, step: str, error: BaseException | None) -> Unreachable:
        if isinstance(error, Unreachable):
            return error
        if not self._lines and error is not None:
            return unreachable(error, self.target, self.name, None)
        silent = any(line.silent for line in self._lines)
        seconds = self.target.alive_interval * self.target.alive_count
        cause = f"no sign of life for {seconds:g} s" if silent else str(error or "closed")
        return Unreachable(
            sanitise.text(f"the connection was lost: {cause}", line=300),
            host=self.name,
            step=step,
            hint="what runs on the host goes on by itself; look with `opsctl status`",
        )

    def _silent(self, argv: Sequence[str], what: str) -> Silent:
        return Silent(f"`{_short(argv)}` {what}", host=self.name, step=_short(argv))


class Said:
    """What a command has said so far, without the noise before it."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.out, self.err = bytearray(), Tail(MAX_ERR)

    def read(self, channel: Any) -> bool:
        """Whether anything came."""
        came = False
        for _ in range(64):  # at most 4 MiB, then the caller looks at its limits
            if channel.recv_stderr_ready():
                self.err.feed(self.start.err(channel.recv_stderr(_CHUNK)))
            elif channel.recv_ready():
                self.out += self.start.out(channel.recv(_CHUNK))
            else:
                break
            came = True
        return came


def _short(argv: Sequence[str]) -> str:
    """A command for a message: without program text and without end."""
    words = [word for word in argv if "\n" not in word and len(word) < 80]
    return sanitise.text(shlex.join(words[:8]), line=120)


def _send(channel: Any, data: bytes, *, end: bool) -> None:
    try:
        if data:
            channel.sendall(data)
        if end:
            channel.shutdown_write()
    except TimeoutError:
        raise
    except OSError:
        # The command ended before it read its input; what it said tells why.
        return


class _Arrival(threading.Event):
    """Set when a channel has something to read or has ended; only `_wait` clears it.

    The two buffers of a channel share it, and each would clear it when it alone is empty.
    Not `channel.fileno()`: its pipe is closed with the channel while paramiko's own thread may be
    writing to it, which then ends the whole connection, or writes into somebody else's file.
    """

    def clear(self) -> None:
        return

    def rearm(self) -> None:
        super().clear()


def _watched(channel: Any) -> Any:
    channel.arrival = arrival = _Arrival()
    channel.in_buffer.set_event(arrival)
    channel.in_stderr_buffer.set_event(arrival)
    return channel


def _wait(channel: Any) -> bool:
    """Waits a moment for output. False: the command has ended and nothing more will come."""
    if channel.eof_received or channel.closed:
        if channel.exit_status_ready():
            return bool(channel.recv_ready() or channel.recv_stderr_ready())
        channel.status_event.wait(_LOOK)
        return True
    if not (channel.recv_ready() or channel.recv_stderr_ready()):  # the caller left something
        channel.arrival.wait(_LOOK)
    channel.arrival.rearm()  # before the caller reads: what comes from now on wakes the next wait
    return True
