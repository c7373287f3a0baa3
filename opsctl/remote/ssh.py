"""A host over SSH: one connection, opened when first needed, shared by up to eight commands.

Imported lazily (see remote.connect): fabric and paramiko cost 0.2 s.
"""

from __future__ import annotations

import secrets
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
from opsctl.remote.connection import CHANNEL_TIMEOUT, open_connection, unreachable
from opsctl.remote.host import Answer, CommandFailed, Silent, until_closed
from opsctl.remote.pulse import Pulse
from opsctl.remote.target import Target

MAX_SESSIONS = 8  # at once on one connection; sshd's own default (MaxSessions) is 10
MAX_OUT = 32 << 20  # bytes of stdout that a command may say
MAX_ERR = 256 << 10  # bytes of stderr that are kept
_CHUNK = 64 << 10
_LOOK = 1.0  # s between two looks at the clock while nothing comes


class SshHost:
    """Obeys remote.host.Host and Tunnels. Safe to use from several threads."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self.target = target
        self._chain: list[Any] = []
        self._pulse: Pulse | None = None
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_SESSIONS)

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
        out, err = bytearray(), Tail(MAX_ERR)
        with self._started(argv, sudo, err, deadline) as channel:
            _send(channel, stdin, end=True)
            while _wait(channel):
                _read(channel, out, err)
                if len(out) > MAX_OUT:
                    raise too_much(self.name, argv, f"{MAX_OUT >> 20} MiB")
                if time.monotonic() > deadline:
                    raise self._silent(argv, f"did not end within {timeout:g} s")
            _read(channel, out, err)
            rc = self._status(channel, argv)
        answer = Answer(rc, sanitise.text(bytes(out), line=MAX_OUT), err.text(), err.cut)
        self._refused_sudo(answer, sudo)
        return answer

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        lines, err = Lines(self.name, argv), Tail(MAX_ERR)
        command = list(argv) if stdin else until_closed(argv)
        deadline = time.monotonic() + max(idle, CHANNEL_TIMEOUT)
        with self._started(command, sudo, err, deadline) as channel:
            channel.settimeout(max(idle, CHANNEL_TIMEOUT))
            _send(channel, stdin, end=False)
            last = time.monotonic()
            going = True
            while going:
                going = _wait(channel)
                out = bytearray()
                _read(channel, out, err)
                if out:
                    last = time.monotonic()
                yield from lines.feed(bytes(out))
                if time.monotonic() - last > idle:
                    raise self._silent(argv, f"said nothing for {idle:g} s")
            yield from lines.rest()
            rc = self._status(channel, argv)
        answer = Answer(rc, "", err.text(), err.cut)
        self._refused_sudo(answer, sudo)
        if rc != 0:
            raise CommandFailed(self.name, argv, answer)

    # ------------------------------------------------------------ forwarding
    def tunnel(self, address: str, port: int, timeout: float) -> Any:
        try:
            return self._transport().open_channel(
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

    def close(self) -> None:
        with self._lock:
            self._drop()

    # ------------------------------------------------------------ the connection
    def _transport(self) -> Any:
        with self._lock:
            if self._chain and not self._chain[-1].transport.is_active():
                self._drop()
            if not self._chain:
                self._chain = open_connection(self.target)
                self._pulse = Pulse(
                    self._chain[-1].transport,
                    self.target.alive_interval,
                    self.target.alive_count,
                )
            return self._chain[-1].transport

    def _drop(self) -> None:
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
        for connection in reversed(self._chain):
            connection.close()
        self._chain = []

    @contextmanager
    def _started(
        self, argv: Sequence[str], sudo: bool, err: Tail, deadline: float
    ) -> Iterator[Any]:
        """The channel of a command that now runs, past sudo's password. Closed at the end."""
        if not self._places.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._silent(argv, f"waited in vain: {MAX_SESSIONS} commands are running there")
        channel = None
        try:
            channel = self._session(deadline)
            channel.settimeout(max(0.1, deadline - time.monotonic()))
            command, ask = self._command(argv, sudo)
            channel.exec_command(command)
            if ask is not None:
                ask.answer(channel, err, deadline)
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
        """A new session; sshd frees the place of a closed one only after a moment."""
        transport = self._transport()
        patience = min(deadline, time.monotonic() + 5)
        while True:
            try:
                return _watched(transport.open_session(timeout=CHANNEL_TIMEOUT))
            except paramiko.ChannelException as error:
                if time.monotonic() > patience:
                    raise Unreachable(
                        f"it allows no further session on this connection ({error.text})",
                        host=self.name,
                        step="session",
                        hint="raise MaxSessions in its sshd_config",
                    ) from None
                time.sleep(0.2)

    def _command(self, argv: Sequence[str], sudo: bool) -> tuple[str, Password | None]:
        plain = shlex.join(argv)
        if not sudo or not self.target.become or self.target.user == "root":
            return plain, None
        if self.target.become_password is None:
            return f"sudo -n -- {plain}", None
        ask = Password(self.name, self.target.become_password.get_secret_value())
        return ask.command(argv), ask

    # ------------------------------------------------------------ what went wrong
    def _status(self, channel: Any, argv: Sequence[str]) -> int:
        rc = int(channel.recv_exit_status())
        if rc == -1 and not channel.get_transport().is_active():
            raise self._lost(_short(argv), None)
        return rc

    def _lost(self, step: str, error: BaseException | None) -> Unreachable:
        if isinstance(error, Unreachable):
            return error
        if not self._chain and error is not None:
            return unreachable(error, self.target, self.name, None)
        silent = self._pulse is not None and self._pulse.dead
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

    def _refused_sudo(self, answer: Answer, sudo: bool) -> None:
        if not sudo or not self.target.become or answer.rc != 1:
            return
        if answer.out or not answer.err.startswith("sudo: "):
            return
        raise OpsctlError(
            f"sudo is refused for {self.target.user}: {answer.err.splitlines()[0]}",
            host=self.name,
            step="sudo",
            hint=f"allow {self.target.user} NOPASSWD in sudoers, or set ansible_become_password",
        )


class Password:
    """sudo with a password, which goes through stdin and only after sudo has asked for it.

    A rule NOPASSWD makes sudo not ask; a password sent unasked would reach the command itself.
    """

    def __init__(self, host: str, password: str) -> None:
        self._host, self._password = host, password
        mark = secrets.token_hex(8)
        self._prompt, self._go = f"opsctl-ask-{mark}:", f"opsctl-go-{mark}\n"

    def command(self, argv: Sequence[str]) -> str:
        begin = f'printf "%s\\n" {self._go.strip()} >&2; exec "$@"'
        return shlex.join(["sudo", "-S", "-p", self._prompt, "--", "sh", "-c", begin, "sh", *argv])

    def answer(self, channel: Any, err: Tail, deadline: float) -> None:
        """Returns when the command has begun or sudo has given up (its words are in `err`)."""
        said, asked = bytearray(), 0
        while _wait(channel) and time.monotonic() < deadline:
            while channel.recv_stderr_ready():
                said += channel.recv_stderr(_CHUNK)
            if self._go.encode() in said:
                err.feed(bytes(said.partition(self._go.encode())[2]))
                return
            if said.count(self._prompt.encode()) > asked:
                asked += 1
                if asked > 1:
                    raise OpsctlError(
                        "sudo refuses ansible_become_password", host=self._host, step="sudo"
                    )
                channel.sendall(self._password.encode() + b"\n")
        err.feed(bytes(said).replace(self._prompt.encode(), b""))


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


def _read(channel: Any, out: bytearray, err: Tail) -> None:
    for _ in range(64):  # at most 4 MiB, then the caller looks at its limits
        if channel.recv_stderr_ready():
            err.feed(channel.recv_stderr(_CHUNK))
        elif channel.recv_ready():
            out += channel.recv(_CHUNK)
        else:
            return
