"""Opens one SSH connection: jumps, host key, login, limits. Every failure is one Unreachable.

Imported only by ssh.py: fabric costs 0.2 s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fabric
import paramiko
from paramiko.auth_strategy import (
    AuthFailure,
    AuthStrategy,
    InMemoryPrivateKey,
    OnDiskPrivateKey,
    Password,
)

from opsctl.errors import Unreachable
from opsctl.remote import known_hosts, sanitise
from opsctl.remote.known_hosts import Known, Verdict
from opsctl.remote.target import Target

# Limits of paramiko's own steps, in seconds.
BANNER_TIMEOUT = 15
CHANNEL_TIMEOUT = 15
LOGIN_TIMEOUT = 60  # until a login, and all that PAM runs for it, is over
_KEY_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
    "ssh-rsa",
)
_MAX_TRIES = 6  # sshd's MaxAuthTries: more keys than this only end the connection

# paramiko's words when the TCP connection stands, but nothing was negotiated within the limit.
_NO_ANSWER = "No existing session"

# Hosts behind one jump log in there a few at a time: sshd drops logins at random from the tenth on
# that has not ended (MaxStartups 10:30:100).
_DOORS: defaultdict[tuple[str, int], threading.BoundedSemaphore] = defaultdict(
    lambda: threading.BoundedSemaphore(4)
)

# Without a handler, paramiko's threads would write tracebacks to the operator's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def open_connection(target: Target) -> list[fabric.Connection]:
    """The connections that are now open: the jumps in order, then the host itself (last)."""
    chain: list[fabric.Connection] = []
    try:
        for jump in target.jumps:
            with _DOORS[jump.address, jump.port]:
                chain.append(_open(jump, chain[-1] if chain else None, target.name))
        chain.append(_open(target, chain[-1] if chain else None, target.name))
    except BaseException:
        for connection in reversed(chain):
            connection.close()
        raise
    return chain


def _open(stop: Target, gateway: fabric.Connection | None, name: str) -> fabric.Connection:
    try:
        expected = _expected(stop, name)
    except Unreachable:
        if not stop.proxy_command:
            _refuse_dead(stop, name, gateway)
        raise
    keys = Keys(stop)
    config = fabric.Config(
        lazy=True,  # no fabric.yml, no ~/.ssh/config: OpenSSH itself has already been asked
        overrides={
            "load_ssh_configs": False,
            "authentication": {"strategy_class": partial(_same, keys)},
        },
    )
    connect: dict[str, Any] = {
        "banner_timeout": BANNER_TIMEOUT,
        "auth_timeout": login_limit(stop),
        "channel_timeout": CHANNEL_TIMEOUT,
        "disabled_algorithms": {"keys": _unwanted(expected.kinds)},
    }
    proxy = None
    try:
        if stop.proxy_command and gateway is None:
            command = shlex.join(["/bin/sh", "-c", f"exec {stop.proxy_command}"])
            connect["sock"] = proxy = paramiko.ProxyCommand(command)
        connection = fabric.Connection(
            host=stop.address,
            user=stop.user,
            port=stop.port,
            config=config,
            gateway=gateway,
            forward_agent=False,
            connect_timeout=_seconds(stop),
            connect_kwargs=connect,
        )
        # Fabric's own policy accepts any key.
        connection.client.set_missing_host_key_policy(_Strict(stop, name, expected))
        connection.open()
    except Unreachable:
        raise
    except Exception as error:
        found = unreachable(error, stop, name, keys, gateway)
        if proxy is not None:
            found = _proxy_failed(found, proxy)
        raise found from error
    return connection


def _proxy_failed(found: Unreachable, proxy: Any) -> Unreachable:
    """What the ProxyCommand itself has said names the jump host; the command line may hold a
    password, so it is not shown."""
    stderr = proxy.process.stderr
    os.set_blocking(stderr.fileno(), False)
    with contextlib.suppress(OSError):
        said = sanitise.text(stderr.read() or b"").strip().splitlines()
        if said:
            return Unreachable(
                f"{found.message}; its ProxyCommand said: {said[-1][:300]}",
                host=found.host,
                step="jump",
                hint=found.hint,
            )
    return found


def login_limit(stop: Target) -> float:
    """Seconds that a login may take; ConnectTimeout and ansible_timeout can only raise it."""
    return max(LOGIN_TIMEOUT, stop.connect_timeout)


def _seconds(stop: Target) -> int:
    return max(1, round(stop.connect_timeout))  # fabric takes whole seconds


def _same(keys: Keys, **_: Any) -> Keys:
    return keys


# ---------------------------------------------------------------- the host's key
def _expected(stop: Target, name: str) -> Known:
    """What the known_hosts files say; a host that they do not name is not asked to log in."""
    entries: list[known_hosts.Entry] = []
    for file in stop.known_hosts:
        try:
            text = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        entries += known_hosts.read(text, file)
    found = known_hosts.known(entries, stop.key_names)
    if not found.keys and not found.fallback:
        raise _key_error(
            stop,
            name,
            f"the host key of {stop.key_names[0]} is not known",
            why="known_hosts names only a certificate authority, and host certificates are not "
            "supported: add the host's own key"
            if found.authorities
            else f"connect once by `{stop.by_hand}` and check the fingerprint that it shows",
        )
    return found


def _refuse_dead(stop: Target, name: str, gateway: fabric.Connection | None) -> None:
    """Raises Unreachable for a host, or a jump, that is not there: its key is not what is wrong
    then. Nothing is sent to it."""
    place, limit = (stop.address, stop.port), stop.connect_timeout
    try:
        if gateway is None:
            socket.create_connection(place, timeout=limit).close()
        else:
            gateway.transport.open_channel("direct-tcpip", place, ("", 0), timeout=limit).close()
    except (OSError, paramiko.SSHException) as error:
        raise unreachable(error, stop, name, None, gateway) from error


def _unwanted(kinds: frozenset[str]) -> list[str]:
    """Key algorithms that known_hosts cannot judge; else a host might show its other key."""
    wanted = set(kinds)
    if "ssh-rsa" in wanted:
        wanted |= {"rsa-sha2-512", "rsa-sha2-256"}
    return [kind for kind in _KEY_KINDS if kind not in wanted]


class _Strict(paramiko.MissingHostKeyPolicy):
    """paramiko's own store is left empty, so every key is asked for here."""

    def __init__(self, stop: Target, name: str, expected: Known) -> None:
        self._stop, self._name, self._expected = stop, name, expected

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        verdict, where = self._expected.judge(key.asbytes())
        if verdict is Verdict.KNOWN:
            return
        shown = f"it shows {key.get_name()} {known_hosts.fingerprint(key.asbytes())}"
        what = {
            Verdict.REVOKED: f"the host key is marked as revoked ({where}); {shown}",
            Verdict.CHANGED: f"the host key is not the one of {where}; {shown}",
        }.get(verdict, f"the host key is not known; {shown}")
        raise _key_error(
            self._stop,
            self._name,
            what,
            why="this may be another machine. If it was reinstalled, check the fingerprint on its "
            f"console, correct known_hosts, then `{self._stop.by_hand}`",
        )


def _key_error(stop: Target, name: str, what: str, why: str) -> Unreachable:
    via = "" if stop.name == name else f" (jump {stop.name})"
    lax = stop.strictness in ("no", "off", "false", "accept-new")
    note = "; opsctl always checks, StrictHostKeyChecking does not change that" if lax else ""
    return Unreachable(f"{what}{via}{note}", host=name, step="host key", hint=why)


# ---------------------------------------------------------------- who we are
class Keys(AuthStrategy):
    """Keys of the agent and of files, as OpenSSH would try them; then the password, if the
    inventory has one for this host, once."""

    def __init__(self, stop: Target) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._stop = stop
        self.notes: list[str] = []

    def get_sources(self) -> Iterator[Any]:
        tries, most = 0, _MAX_TRIES - (self._stop.password is not None)
        files = [Path(key) for key in self._stop.keys if Path(key).is_file()]
        public = {blob for file in files if (blob := _public_part(file))}
        offered = set()
        for key in self._agent_keys():
            named = key.asbytes() in public
            if named or (not self._stop.identities_only and tries < most):
                tries += 1
                offered.add(key.asbytes())
                yield InMemoryPrivateKey(self._stop.user, key)
        for file in files:
            loaded = None if _public_part(file) in offered else self._load(file)
            if loaded is not None and tries < most:
                tries += 1
                yield OnDiskPrivateKey(self._stop.user, "ssh-config", file, loaded)
        if self._stop.password is not None:
            yield Password(self._stop.user, self._stop.password.get_secret_value)
            self.notes.append("neither a key nor ansible_password is accepted")
        elif tries == 0:
            self.notes.append("there is no key to log in with")

    def _agent_keys(self) -> tuple[Any, ...]:
        if not self._stop.agent:
            return ()
        try:
            return tuple(paramiko.Agent().get_keys())
        except (OSError, paramiko.SSHException) as error:
            self.notes.append(f"the SSH agent gives no keys: {error}")
            return ()

    def _load(self, file: Path) -> paramiko.PKey | None:
        try:
            key = paramiko.PKey.from_path(file)
        except (TypeError, paramiko.PasswordRequiredException):
            # cryptography says TypeError for a key that needs a passphrase
            self.notes.append(f"{file} needs a passphrase (ssh-add {file})")
            return None
        except Exception as error:  # whatever a broken file makes the libraries say
            self.notes.append(f"{file} cannot be read: {type(error).__name__}")
            return None
        for certificate in self._stop.certificates:
            if Path(certificate).is_file() and _public_part(Path(certificate)) is not None:
                key.load_certificate(certificate)
        return key


def _public_part(file: Path) -> bytes | None:
    path = file if file.name.endswith(".pub") else file.with_name(file.name + ".pub")
    try:
        words = path.read_text(encoding="utf-8").split()
        return known_hosts.blob(words[1])
    except (OSError, IndexError, ValueError):
        return None


# ---------------------------------------------------------------- what went wrong
def unreachable(
    error: BaseException,
    stop: Target,
    name: str,
    keys: Keys | None,
    gateway: fabric.Connection | None = None,
) -> Unreachable:
    """Any failure of connecting in the operator's words. `gateway`: the jump that led there."""
    where = f"{stop.address} port {stop.port}"
    via = "" if stop.name == name else f" (jump {stop.name})"
    step, message, hint = "connect", "", f"try `{stop.by_hand}`"
    if isinstance(error, AuthFailure | paramiko.AuthenticationException):
        notes = "; ".join(keys.notes) if keys and keys.notes else "none of the keys is accepted"
        step, message = "login", f"{where} refuses the login of {stop.user}: {notes}"
    elif isinstance(error, paramiko.ChannelException):
        jump = f"the jump host {gateway.host}" if gateway else "the jump host"
        step, message = "jump", f"{jump} will not connect to {where}: {error.text}"
        if error.code == 1:  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED
            hint = f"its sshd_config must allow it: AllowTcpForwarding, PermitOpen; {hint}"
    elif isinstance(error, socket.gaierror):
        message = f"the name {stop.address} cannot be resolved: {error.strerror}"
    elif isinstance(error, TimeoutError):
        message = f"{where} gave no answer within {stop.connect_timeout:g} s"
    elif isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        causes = {str(getattr(e, "strerror", e) or e) for e in error.errors.values()}
        message = f"{where}: {', '.join(sorted(causes))}"
    elif isinstance(error, paramiko.SSHException) and str(error) == _NO_ANSWER:
        message = (
            f"{where}: connected, but the host does not answer (frozen, or overloaded?) within "
            f"{_seconds(stop)} s"
        )
    elif isinstance(error, OSError) and error.strerror:
        message = f"{where}: {error.strerror}"
    elif isinstance(error, EOFError):
        message = f"{where} closed the connection before the login"
    else:
        message = f"{where}: {error or type(error).__name__}"
    if via:
        step, via = "jump", f"{via}, so {name} was not reached"
    return Unreachable(sanitise.text(message + via, line=500), host=name, step=step, hint=hint)
