"""Where a host is and how to log in there, from Ansible's variables and from OpenSSH's own answer.

OpenSSH alone knows what `Host`, `Match`, `Include` and `%` tokens in a user's files mean, so it is
asked (`ssh -G`) and not imitated. `resolve` is the only function here that runs a program.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import SecretStr

from opsctl.errors import Problem, SpecError
from opsctl.remote import openssh
from opsctl.remote.openssh import Options

_ALIASES = {
    "ansible_host": ("ansible_ssh_host",),
    "ansible_port": ("ansible_ssh_port",),
    "ansible_user": ("ansible_ssh_user",),
    "ansible_ssh_private_key_file": ("ansible_private_key_file",),
    "ansible_become_password": (
        "ansible_become_pass",
        "ansible_sudo_pass",
        "ansible_become_password_asked",  # ansible.reading.asked
    ),
    "ansible_become_user": ("ansible_sudo_user",),
    "ansible_become_exe": ("ansible_sudo_exe",),
    "ansible_password": ("ansible_ssh_pass", "ansible_ssh_password", "ansible_password_asked"),
    "ansible_private_key": ("ansible_ssh_private_key",),
    "ansible_timeout": ("ansible_ssh_timeout",),
}
_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh")
_LOCAL = ("local", "ansible.builtin.local")
_MAX_JUMPS = 8

ConfigOf = Callable[[list[str]], str]
"""Arguments after `ssh -G` → what it printed."""


@dataclass(frozen=True)
class Target:
    """All that a connection needs. Times in seconds."""

    name: str
    address: str
    port: int = 22
    user: str = "root"
    keys: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: bool = True
    known_hosts: tuple[str, ...] = ()
    key_alias: str = ""
    strictness: str = "ask"
    jumps: tuple[Target, ...] = ()
    proxy_command: str = ""
    connect_timeout: float = openssh.CONNECT_TIMEOUT
    alive_interval: float = openssh.ALIVE_INTERVAL
    alive_count: int = openssh.ALIVE_COUNT
    become: bool = False
    become_password: SecretStr | None = None
    sudo: str = "sudo"  # the program that makes root of `user`
    password: SecretStr | None = None  # of the login itself
    python: str = ""
    local: bool = False
    options: tuple[str, ...] = ()  # of the inventory, that who types `ssh` needs as well

    @property
    def by_hand(self) -> str:
        """What an operator types to get there."""
        over = f" -J {','.join(jump.login for jump in self.jumps)}" if self.jumps else ""
        port = "" if self.port == 22 else f" -p {self.port}"
        more = f" {shlex.join(self.options)}" if self.options else ""
        return f"ssh{more}{over}{port} {self.user}@{self.address}"

    @property
    def login(self) -> str:
        """As ProxyJump has it."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.user}@{address}" + ("" if self.port == 22 else f":{self.port}")

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names that this host may have in a known_hosts file, the exact one first."""
        if self.key_alias:
            return (self.key_alias,)
        if self.port == 22:
            return (self.address,)
        return (f"[{self.address}]:{self.port}", self.address)


def resolve(name: str, variables: Mapping[str, Any], config_of: ConfigOf | None = None) -> Target:
    """The target of inventory host `name`. Raises SpecError for what opsctl cannot honour."""
    problems, become = _checked(name, variables)
    if problems:
        raise SpecError(problems)
    python = _text(variables, "ansible_python_interpreter")
    python = "" if python.startswith("auto") else python
    sudo = _text(variables, "ansible_become_exe") or "sudo"
    if _text(variables, "ansible_connection") in _LOCAL:
        return Target(name, "localhost", become=become, sudo=sudo, python=python, local=True)
    ask = config_of or _ask_openssh
    arguments = openssh.arguments(name, _plain(variables))
    options = openssh.parse(ask(arguments))
    password = _secret(variables, "ansible_password")
    target = _target(name, options, password is not None)
    if "ansible_become" in variables and not become and target.user != "root":
        message = f"is off, and {target.user} is not root: opsctl needs root on its hosts"
        raise SpecError([Problem(message, host=name, key="ansible_become", allowed="true")])
    return replace(
        target,
        jumps=_jumps(name, options, openssh.config_file(arguments), ask),
        become=target.user != "root",
        become_password=_secret(variables, "ansible_become_password"),
        sudo=sudo,
        password=password,
        python=python,
        options=openssh.to_type(arguments),
    )


def _target(name: str, options: Options, password: bool = False) -> Target:
    unsupported = openssh.unsupported(name, options, password=password)
    if unsupported:
        raise SpecError(unsupported)
    interval, count = openssh.keepalive(options)
    return Target(
        name=name,
        address=openssh.one(options, "hostname", name),
        port=int(openssh.one(options, "port", "22")),
        user=openssh.one(options, "user", "root"),
        keys=openssh.paths(options, "identityfile"),
        certificates=openssh.paths(options, "certificatefile"),
        identities_only=openssh.yes(options, "identitiesonly"),
        agent=openssh.one(options, "identityagent").lower() != "none",
        known_hosts=openssh.paths(options, "userknownhostsfile")
        + openssh.paths(options, "globalknownhostsfile"),
        key_alias=openssh.one(options, "hostkeyalias"),
        strictness=openssh.one(options, "stricthostkeychecking", "ask"),
        proxy_command=openssh.proxy_command(name, options),
        connect_timeout=openssh.connect_timeout(options),
        alive_interval=interval,
        alive_count=count,
    )


def _jumps(
    name: str, options: Options, config: tuple[str, ...], ask: ConfigOf, depth: int = 0
) -> tuple[Target, ...]:
    """The jumps in the order they are passed. A jump takes only -F from its target, as in OpenSSH;
    only the first one may have jumps of its own, since the others are reached through it."""
    hops = openssh.jumps(options)
    if depth + len(hops) > _MAX_JUMPS:
        raise SpecError(
            [
                Problem(
                    f"more than {_MAX_JUMPS} jumps: does a host jump over itself?",
                    host=name,
                    key="ProxyJump",
                    value=openssh.one(options, "proxyjump"),
                )
            ]
        )
    chain: list[Target] = []
    for index, hop in enumerate(hops):
        found = openssh.parse(ask([*config, *hop.arguments()]))
        jump = _target(hop.host, found)
        if index == 0:
            chain += _jumps(hop.host, found, config, ask, depth + len(hops))
        # Its own ProxyCommand counts only where nothing else leads to it.
        jump = replace(jump, options=config)
        chain.append(replace(jump, proxy_command="") if chain else jump)
    return tuple(chain)


def _ask_openssh(arguments: list[str]) -> str:
    try:
        done = subprocess.run(
            ["ssh", "-G", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
        )
    except FileNotFoundError:
        raise SpecError(
            [Problem("the OpenSSH client (ssh) is not installed on this machine")]
        ) from None
    except subprocess.TimeoutExpired:
        raise SpecError(
            [Problem("ssh -G gave no answer within 20 s", host=arguments[-1])]
        ) from None
    if done.returncode != 0:
        raise SpecError(
            [Problem(f"OpenSSH refuses its arguments: {done.stderr.strip()}", host=arguments[-1])]
        )
    return done.stdout


def _checked(name: str, variables: Mapping[str, Any]) -> tuple[list[Problem], bool]:
    """What in Ansible's variables opsctl cannot honour, and whether `become` is asked for."""
    problems = []

    def refuse(key: str, allowed: str, hint: str = "") -> None:
        problems.append(
            Problem(
                "is not supported by opsctl",
                host=name,
                key=key,
                value=_text(variables, key),
                allowed=allowed,
                hint=hint,
            )
        )

    connection = _text(variables, "ansible_connection")
    if connection and connection not in (*_CONNECTIONS, *_LOCAL):
        refuse("ansible_connection", "ssh, local")
    method = _text(variables, "ansible_become_method")
    if method and method not in ("sudo", "ansible.builtin.sudo"):
        refuse("ansible_become_method", "sudo")
    if _text(variables, "ansible_become_user") not in ("", "root"):
        refuse("ansible_become_user", "root")
    if _value(variables, "ansible_private_key"):
        problems.append(
            Problem(
                "is not supported by opsctl: a key is a file, or in the agent",
                host=name,
                key="ansible_private_key",
                allowed="ansible_private_key_file, or ssh-add KEY",
            )
        )
    return problems, _truth(variables.get("ansible_become", False))


def _truth(value: object) -> bool:
    return str(value).strip().lower() in ("1", "true", "yes", "on", "t", "y")


def _value(variables: Mapping[str, Any], key: str) -> Any:
    for candidate in (key, *_ALIASES.get(key, ())):
        if variables.get(candidate) not in (None, ""):
            return variables[candidate]
    return None


def _secret(variables: Mapping[str, Any], key: str) -> SecretStr | None:
    value = _value(variables, key)
    if value is None or isinstance(value, SecretStr):
        return value
    return SecretStr(str(value))


def _text(variables: Mapping[str, Any], key: str) -> str:
    value = _value(variables, key)
    return "" if value is None else str(value)


def _plain(variables: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(variables, key) for key in openssh.VARIABLES}
