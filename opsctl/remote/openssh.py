"""OpenSSH's words: the arguments for `ssh -G`, and its answer. Pure functions over text.

`ssh -G` prints one option a line, lower case, `key value`, defaults included; a key may repeat
(identityfile). Options that paramiko lacks are named errors where ignoring them would change who
is trusted or what is reached; the rest (ControlMaster, forwarding, ciphers) is ignored.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opsctl.errors import Problem, SpecError

Options = dict[str, list[str]]

VARIABLES = (
    "ansible_host",
    "ansible_port",
    "ansible_user",
    "ansible_ssh_private_key_file",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_timeout",
)

# Where OpenSSH's own default is "wait for ever", opsctl has limits.
CONNECT_TIMEOUT = 10.0
ALIVE_INTERVAL = 5.0
ALIVE_COUNT = 3
_LONGEST_SILENCE = 60.0  # s; ServerAliveInterval 300 (Debian's BatchMode default) is no limit


@dataclass(frozen=True)
class Hop:
    """One part of ProxyJump: [user@]host[:port]."""

    host: str
    user: str = ""
    port: str = ""

    def arguments(self) -> list[str]:
        user = ["-l", self.user] if self.user else []
        port = ["-p", self.port] if self.port else []
        return [*user, *port, "--", self.host]


def arguments(name: str, variables: Mapping[str, str]) -> list[str]:
    """What follows `ssh -G`, in Ansible's order: of two values OpenSSH takes the first."""
    host = variables.get("ansible_host") or name
    found = _split(name, "ansible_ssh_args", variables)
    for option, key in (("Port", "ansible_port"), ("User", "ansible_user")):
        if variables.get(key):
            found += ["-o", f'{option}="{_quotable(name, key, variables[key])}"']
    key_file = variables.get("ansible_ssh_private_key_file")
    if key_file:
        path = _quotable(name, "ansible_ssh_private_key_file", str(Path(key_file).expanduser()))
        found += ["-o", f'IdentityFile="{path}"']
    if variables.get("ansible_timeout"):
        value = _quotable(name, "ansible_timeout", variables["ansible_timeout"])
        found += ["-o", f'ConnectTimeout="{value}"']
    found += _split(name, "ansible_ssh_common_args", variables)
    found += _split(name, "ansible_ssh_extra_args", variables)
    if host.startswith("-"):
        raise SpecError([Problem("a host name cannot begin with a dash", host=name, value=host)])
    return [*found, "--", host]


def _split(name: str, key: str, variables: Mapping[str, str]) -> list[str]:
    try:
        return shlex.split(variables.get(key, ""))
    except ValueError as error:
        raise SpecError(
            [Problem(f"is not a command line: {error}", host=name, key=key, value=variables[key])]
        ) from None


def _quotable(name: str, key: str, value: str) -> str:
    if '"' in value or "\n" in value:
        raise SpecError(
            [Problem("may not hold quotes or line ends", host=name, key=key, value=value)]
        )
    return value


def config_file(arguments: list[str]) -> tuple[str, ...]:
    """The -F of these arguments, which jumps share with their target."""
    for index, word in enumerate(arguments):
        if word == "-F" and index + 1 < len(arguments):
            return ("-F", arguments[index + 1])
        if word.startswith("-F") and len(word) > 2:
            return ("-F", word[2:])
    return ()


# Options that decide whether a login by hand works, and hold no secret (a ProxyCommand may).
_TYPED = ("userknownhostsfile", "hostkeyalias", "identitiesonly", "identityagent")


def to_type(arguments: list[str]) -> tuple[str, ...]:
    """What of these arguments an operator has to type, too: files of settings and keys."""
    found: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        if word[:2] not in ("-F", "-i", "-o"):
            continue
        option, value = word[:2], word[2:] or next(words, "")
        key, _, said = value.partition("=")
        if option == "-o" and key.strip().lower() == "identityfile":
            option, value = "-i", said.strip().strip('"')
        elif option == "-o" and key.strip().lower() not in _TYPED:
            continue
        found += [option, value]
    return tuple(found)


def parse(text: str) -> Options:
    """`ssh -G`'s answer by lower-case key, values in their order."""
    options: Options = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key:
            options.setdefault(key.lower(), []).append(value.strip())
    return options


def one(options: Options, key: str, default: str = "") -> str:
    return options.get(key, [default])[0] or default


def yes(options: Options, key: str) -> bool:
    return one(options, key).lower() in ("yes", "true")


def _off(value: str) -> bool:
    return value.lower() in ("", "none", "no", "false")


def paths(options: Options, key: str) -> tuple[str, ...]:
    """Files of an option, home and simple tokens expanded; several may stand on one line."""
    found: list[str] = []
    for value in options.get(key, []):
        words = [value] if key in ("identityfile", "certificatefile") else value.split()
        found += [_expand(word, options) for word in words if not _off(word)]
    return tuple(found)


def _expand(word: str, options: Options) -> str:
    """Tokens as ssh_config(5) has them; those not listed there for files stay as they are."""
    tokens = {
        "%": "%",
        "d": str(Path.home()),
        "h": one(options, "hostname"),
        "p": one(options, "port"),
        "r": one(options, "user"),
        "n": one(options, "host"),
        "k": one(options, "hostkeyalias") or one(options, "host"),
    }
    expanded = re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), word)
    return str(Path(expanded).expanduser())


def proxy_command(name: str, options: Options) -> str:
    value = one(options, "proxycommand")
    if _off(value):
        return ""
    if re.search(r"%[^%hnprk]", value):
        raise SpecError(
            [
                Problem(
                    "holds a token that opsctl does not know",
                    host=name,
                    key="ProxyCommand",
                    value=value,
                    allowed="%h %n %p %r %k %%",
                )
            ]
        )
    tokens = {
        "%": "%",
        "h": one(options, "hostname"),
        "n": one(options, "host"),
        "p": one(options, "port"),
        "r": one(options, "user"),
        "k": one(options, "hostkeyalias") or one(options, "host"),
    }
    return re.sub(r"%(.)", lambda m: tokens[m[1]], value)


_HOP = re.compile(r"(?:(?P<user>.+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?")


def jumps(options: Options) -> list[Hop]:
    value = one(options, "proxyjump")
    if _off(value):
        return []
    hops = []
    for part in value.split(","):
        match = _HOP.fullmatch(part.strip().removeprefix("ssh://").rstrip("/"))
        if match is None:
            raise SpecError(
                [
                    Problem(
                        "cannot be read",
                        host=one(options, "host"),
                        key="ProxyJump",
                        value=part,
                        allowed="[user@]host[:port]",
                    )
                ]
            )
        hops.append(Hop(match["v6"] or match["host"], match["user"] or "", match["port"] or ""))
    return hops


def connect_timeout(options: Options) -> float:
    value = one(options, "connecttimeout")
    return float(value) if value.isdigit() and int(value) > 0 else CONNECT_TIMEOUT


def keepalive(options: Options) -> tuple[float, int]:
    """(seconds between two signs of life, how many may stay without an answer)."""
    interval = one(options, "serveraliveinterval", "0")
    count = one(options, "serveralivecountmax", "3")
    if not interval.isdigit() or int(interval) == 0 or not count.isdigit() or int(count) == 0:
        return ALIVE_INTERVAL, ALIVE_COUNT
    if int(interval) * int(count) > _LONGEST_SILENCE:
        return ALIVE_INTERVAL, ALIVE_COUNT
    return float(interval), int(count)


def unsupported(name: str, options: Options, *, password: bool = False) -> list[Problem]:
    """Options that change what is trusted or reached and that opsctl cannot honour."""
    checks = (
        ("pkcs11provider", "PKCS11Provider", "load the token into ssh-agent: ssh-add -s PROVIDER"),
        ("knownhostscommand", "KnownHostsCommand", "write the key to a known_hosts file"),
        ("bindaddress", "BindAddress", ""),
        ("bindinterface", "BindInterface", ""),
        ("proxyusefdpass", "ProxyUseFdpass", "use a ProxyCommand that passes data"),
    )
    found = [
        Problem(
            "SSH option is not supported by opsctl",
            host=name,
            key=label,
            value=one(options, key),
            hint=hint,
        )
        for key, label, hint in checks
        if not _off(one(options, key))
    ]
    agent = one(options, "identityagent")
    if agent and agent not in ("SSH_AUTH_SOCK", "$SSH_AUTH_SOCK") and agent.lower() != "none":
        found.append(
            Problem(
                "SSH option is not supported by opsctl",
                host=name,
                key="IdentityAgent",
                value=agent,
                allowed="SSH_AUTH_SOCK, none",
                hint=f"export SSH_AUTH_SOCK={agent}",
            )
        )
    return found if password else found + _no_public_key(name, options)


def _no_public_key(name: str, options: Options) -> list[Problem]:
    """GSSAPI is switched on in many system files and harmless beside keys; alone it is not."""
    methods = one(options, "preferredauthentications")
    disabled = _off(one(options, "pubkeyauthentication", "yes"))
    if not disabled and (not methods or "publickey" in methods.split(",")):
        return []
    return [
        Problem(
            "SSH allows no public key here, and there is no ansible_password",
            host=name,
            key="PreferredAuthentications" if methods else "PubkeyAuthentication",
            value=methods or "no",
            allowed="publickey (not GSSAPI, not passwords)",
        )
    ]
