"""Calls the ground floor on a host: ships it through stdin, reads JSON, leaves nothing there."""

from __future__ import annotations

import base64
import json
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from opsctl.errors import LockHeld, OpsctlError
from opsctl.onhost import bundle
from opsctl.remote import sanitise
from opsctl.remote.host import Answer, CommandFailed, Host

HELD = 7  # exit code of `lock` when another run holds it
_PYTHON = "python3"


class NoPython(OpsctlError):
    """The host has no interpreter that runs the ground floor; `old`: it has one that is too old."""

    def __init__(self, message: str, *, old: bool = False, **told: Any) -> None:
        super().__init__(message, **told)
        self.old = old


# What the program says that a Python older than 3.9 gets (onhost.bundle).
_OLD = re.compile(r"opsctl-old-python (\S+) (.+)")


def argv(host: Host, verb: str, *args: str) -> list[str]:
    return [*python(host), *bundle.boot_argv(len(bundle.build()), verb, *args)[1:]]


def python(host: Host) -> list[str]:
    """The host's interpreter; ansible_python_interpreter may be a command: /usr/bin/env python3."""
    return shlex.split(getattr(getattr(host, "target", None), "python", "") or _PYTHON)


def call(
    host: Host,
    verb: str,
    *args: str,
    stdin: bytes | Mapping[str, Any] | None = None,
    timeout: float = 60,
) -> dict[str, Any]:
    """The verb's JSON document. Raises OpsctlError with the host's words, LockHeld, NoPython."""
    answer = host.run(
        argv(host, verb, *args), stdin=bundle.build() + _bytes(stdin), timeout=timeout, sudo=True
    )
    return document(host.name, verb, answer)


def follow(
    host: Host, verb: str, *args: str, stdin: bytes | None = None, idle: float
) -> Iterator[dict[str, Any]]:
    """The verb's JSON lines as they come. Closing the iterator ends the verb on the host."""
    lines = host.stream(
        argv(host, verb, *args), stdin=bundle.build() + _bytes(stdin), idle=idle, sudo=True
    )
    try:
        with closing(lines):  # type: ignore[type-var]
            for line in lines:
                if line.strip():
                    value = _parsed(host.name, verb, line)
                    _raise_error(host.name, verb, value)
                    yield value
    except CommandFailed as error:
        # A JSON error would have been raised above, so this is Python's or the shell's own.
        raise _failed(host.name, verb, error.answer) from None


def document(host: str, verb: str, answer: Answer) -> dict[str, Any]:
    """One verb's answer as a value (pure). Raises as `call` does."""
    if not answer.out.strip():
        if answer.rc == 0:
            return {}
        raise _failed(host, verb, answer)
    try:
        value = _parsed(host, verb, answer.out)
    except OpsctlError:
        if answer.rc != 0:
            raise _failed(host, verb, answer) from None
        raise
    if answer.rc == HELD and isinstance(value.get("held"), dict):
        raise Held(host, value["held"])
    _raise_error(host, verb, value)
    if answer.rc != 0:
        raise _failed(host, verb, answer)
    return value


def unsealed(text: str) -> Any:
    """What a host has sealed (onhost.process.sealed): exact, so nothing for a terminal."""
    return json.loads(base64.b64decode(text))


class Held(LockHeld):
    """The lock that another run holds: lock.json with "state" and "hint"."""

    def __init__(self, host: str, lock: Mapping[str, Any]) -> None:
        super().__init__(
            locked(lock),
            host=host,
            step="lock",
            hint=str(lock.get("hint") or "look with `opsctl status`; wait, or ask the owner"),
        )
        self.lock = dict(lock)

    @property
    def over(self) -> bool:
        """Whether its run has ended, so that nobody needs it any more."""
        return self.lock.get("state") == "over"


def locked(lock: Mapping[str, Any]) -> str:
    """Who keeps others out, since when and why (pure)."""
    owner, reason, run = (str(lock.get(key) or "unknown") for key in ("owner", "reason", "run"))
    return f"locked by {owner} since {_utc(lock.get('since'))} (run {run}): {reason}"


def _utc(since: object) -> str:
    if not isinstance(since, int | float) or since <= 0:
        return "unknown"
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(since))


def _raise_error(host: str, verb: str, value: Mapping[str, Any]) -> None:
    error = value.get("error")
    if isinstance(error, dict) and "message" in error:
        raise OpsctlError(
            str(error["message"]), host=host, step=verb, hint=str(error.get("hint") or "")
        )


def _parsed(host: str, verb: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        start = sanitise.text(text.strip(), line=200)[:200]
        raise OpsctlError(
            f"the answer is not a JSON document; it begins: {start}",
            host=host,
            step=verb,
            hint="look at what the host prints at login (~/.bashrc, PAM, banner)",
        )
    cleaned: dict[str, Any] = sanitise.tree(value)
    return cleaned


def _failed(host: str, verb: str, answer: Answer) -> OpsctlError:
    log = answer.err.strip().splitlines()[-20:]
    last = log[-1] if log else f"exit code {answer.rc} without a word"
    missing = no_python(host, verb, answer.rc, last)
    return missing or OpsctlError(f"failed on the host: {last}", host=host, step=verb, log=log)


def no_python(host: str, step: str, rc: int, last: str) -> NoPython | None:
    """What a shell's exit codes, and the ground floor's own look at its Python, tell of it."""
    old = _OLD.search(last)
    if rc not in (126, 127) and old is None:
        return None
    message = f"no Python interpreter was found: {last}"
    hint = "on the host: apt-get install python3 (or dnf); or set ansible_python_interpreter"
    named = re.search(r"(/\S*python[\w.]*)['’]?: (?:not found|No such file)", last)
    if named and old is None:
        hint = f"ansible_python_interpreter names {named[1]}, which is not there: correct it, or "
        hint += "remove it where the host has python3; else, on the host: apt-get install python3"
    if old is not None:
        message = f"{old[2]} is Python {old[1]}, and opsctl needs 3.9 or newer on its hosts"
        hint = "install a newer python3 there, and set ansible_python_interpreter to its path"
    return NoPython(message, host=host, step=step, hint=hint, old=old is not None)


def _bytes(stdin: bytes | Mapping[str, Any] | None) -> bytes:
    if stdin is None:
        return b""
    return stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()


def split(stdin: bytes) -> bytes:
    """The verb's part of what `call` sends (for fake hosts)."""
    return stdin[len(bundle.build()) :]
