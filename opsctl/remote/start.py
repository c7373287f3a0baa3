"""A command's way through the login shell and sudo, told by marks instead of by words.

Files of a login shell, sudo's lecture and PAM write to the same streams as the command, in the
host's own language. So the command itself says on both streams when it is reached: what stands
before that is noise, and a command that ends without having said so was not run. Pure, but for the
marks, which are random.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence

from opsctl.errors import OpsctlError
from opsctl.remote import sanitise

_BEGIN = 'printf "%s\\n" "$1"; printf "%s\\n" "$1" >&2; shift; exec "$@"'
_PASSED = 'printf "%s\\n" "$1" >&2; shift; exec "$@"'
_KEPT = 64 << 10  # bytes of noise that an error may be told from
NO_COMMAND = 127  # a shell's exit code for a command that is not there

ANSWER = "set ansible_become_password (in a vault), or give -K"


class After:
    """The part of a stream that follows a mark, which is a line, or the end of one."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode() + b"\n"
        self._before = bytearray()
        self.begun = False
        self.noise = 0  # bytes before the mark, so far

    def feed(self, data: bytes) -> bytes:
        """What of `data` comes after the mark."""
        if self.begun:
            return data
        self.noise += len(data)
        self._before += data
        before, mark, rest = bytes(self._before).partition(self._mark)
        if mark:
            self.begun, self._before = True, bytearray(before)
            return rest
        del self._before[:-_KEPT]
        return b""

    @property
    def before(self) -> bytes:
        return bytes(self._before)


class Start:
    """One command: `command` is what the login shell gets; `out` and `err` filter what it says."""

    def __init__(
        self, host: str, user: str, *, sudo: str = "", password: bool = False, number: str = ""
    ) -> None:
        """`sudo`: the program by which the command becomes root, "" if it need not. `password`:
        sudo may ask for one."""
        self._host, self._user, self._sudo, self.may_ask = host, user, sudo, password
        number = number or secrets.token_hex(8)
        self._go, self._login = f"opsctl-go-{number}", f"opsctl-in-{number}"
        self._prompt = f"opsctl-ask-{number}:"
        self._out, self._err = After(self._go), After(self._go)
        self._shell = After(self._login)
        self._answered = 0

    def argv(self, argv: Sequence[str]) -> list[str]:
        begun = ["sh", "-c", _BEGIN, "sh", self._go, *argv]
        if not self._sudo:
            return begun
        ask = ["-S", "-p", self._prompt] if self.may_ask else ["-n"]
        return ["sh", "-c", _PASSED, "sh", self._login, self._sudo, *ask, "--", *begun]

    def command(self, argv: Sequence[str]) -> str:
        return shlex.join(self.argv(argv))

    # ------------------------------------------------------------ what comes
    def out(self, data: bytes) -> bytes:
        return self._out.feed(data)

    def err(self, data: bytes) -> bytes:
        return self._err.feed(self._shell.feed(data) if self._sudo else data)

    @property
    def begun(self) -> bool:
        return self._out.begun or self._err.begun

    @property
    def noise(self) -> int:
        return self._out.noise

    @property
    def words(self) -> str:
        """What sudo says, while nothing has begun."""
        said = sanitise.text(self._err.before)
        return "" if self.begun else said.replace(self._prompt, "").strip()

    def asked(self) -> bool:
        """Whether sudo wants the password now. Raises OpsctlError if it has had it: a second try
        would only bring the account nearer to being locked."""
        if self.begun or self._err.before.count(self._prompt.encode()) <= self._answered:
            return False
        self._answered += 1
        if self._answered > 1:
            raise self._sudo_error(
                "sudo refuses ansible_become_password",
                "it was tried once and will not be again; correct it in the vault, or give -K and "
                "type it anew",
            )
        return True

    def waits(self) -> bool:
        """Whether sudo seems to have asked for something in words that are not its own."""
        return bool(self.words) and not self._err.before.endswith((b"\n", self._prompt.encode()))

    # ------------------------------------------------------------ what went wrong
    def stuck(self) -> OpsctlError:
        """sudo waits, and not for the password that was given."""
        return self._sudo_error(
            f"sudo asks for something else than the password: {_last(self.words)}",
            f"opsctl answers sudo's own prompt only: in sudoers, Defaults:{self._user} "
            f"passprompt_override, or {self._user} ALL=(root) NOPASSWD: ALL",
        )

    def refusal(self, rc: int) -> OpsctlError | None:
        """Why the command was not run; None if it was. Asked when it has ended."""
        if self.begun:
            return None
        said = sanitise.text(self._shell.before if self._sudo else self._err.before)
        if not self._sudo or not self._shell.begun:
            return shell_refuses(self._host, self._user, rc, said, sanitise.text(self._out.before))
        return sudo_refuses(self._host, self._user, self._sudo, rc, self.words, self.may_ask)

    def _sudo_error(self, message: str, hint: str) -> OpsctlError:
        return OpsctlError(f"{message} of {self._user}", host=self._host, step="sudo", hint=hint)


def shell_refuses(host: str, user: str, rc: int, err: str, out: str) -> OpsctlError:
    """The login was good, and the user's shell, or a command that sshd forces, ran nothing."""
    said = _last(out) or _last(err) or f"it ended with {rc} without a word"
    return OpsctlError(
        f"the login shell of {user} runs no command: {said}",
        host=host,
        step="shell",
        hint=f"on the host: getent passwd {user}; usermod -s /bin/sh {user}, or name another user "
        "in ansible_user",
    )


def sudo_refuses(
    host: str, user: str, sudo: str, rc: int, words: str, password: bool
) -> OpsctlError:
    """sudo's own words may be in any language: only what they have in all of them is looked for."""
    message = f"sudo is refused for {user}: {_decisive(words, user) or f'it ended with {rc}'}"
    nopasswd = f"allow it in sudoers: {user} ALL=(root) NOPASSWD: ALL"
    hint = nopasswd if password else f"{ANSWER}, or {nopasswd}"
    if rc == NO_COMMAND:
        message = f"{user} is not root, and {sudo} is not on the host"
        hint = "install sudo there, or log in as root: ansible_user: root"
    elif "tty" in words:  # requiretty
        hint = f"in sudoers: Defaults:{user} !requiretty"
    elif complaint := _complaint(words):
        message += f" (and before that: {complaint})"
        hint = f"on the host, as root: visudo -c, and mend what it names; else {hint}"
    return OpsctlError(message, host=host, step="sudo", hint=hint)


def _complaint(words: str) -> str:
    """What sudo says of its own files, which it always names by their paths: of one with an error
    in it, or of the wrong owner, it heeds no rule."""
    lines = (line.strip(" >\t") for line in words.splitlines())
    return next((line[:200] for line in lines if re.search(r"/\S*sudoers", line)), "")


def _decisive(words: str, user: str) -> str:
    """sudo's verdict: it may repeat the command, which has lines of its own."""
    lines = [line for line in words.splitlines() if line.startswith("sudo:") or user in line]
    return _last("\n".join(lines)) or _last(words)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
