"""Calls the ground floor on a host: ships it through stdin, reads JSON, leaves nothing there."""

from __future__ import annotations

import base64
import json
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
    """The host has no interpreter that runs the ground floor."""


def argv(host: Host, verb: str, *args: str) -> list[str]:
    command = bundle.boot_argv(len(bundle.build()), verb, *args)
    target = getattr(host, "target", None)
    return [getattr(target, "python", "") or _PYTHON, *command[1:]]


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
        owner, reason, run = (str(lock.get(key) or "unknown") for key in ("owner", "reason", "run"))
        super().__init__(
            f"locked by {owner} since {_utc(lock.get('since'))} (run {run}): {reason}",
            host=host,
            step="lock",
            hint=str(lock.get("hint") or "look with `opsctl status`; wait, or ask the owner"),
        )
        self.lock = dict(lock)

    @property
    def over(self) -> bool:
        """Whether its run has ended, so that nobody needs it any more."""
        return self.lock.get("state") == "over"


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
    if answer.rc == 127 or (answer.rc == 1 and last.endswith("command not found")):
        return NoPython(
            f"no Python interpreter was found: {last}",
            host=host,
            step=verb,
            hint="install python3 (3.9 or newer), or set ansible_python_interpreter",
            log=log,
        )
    return OpsctlError(f"failed on the host: {last}", host=host, step=verb, log=log)


def _bytes(stdin: bytes | Mapping[str, Any] | None) -> bytes:
    if stdin is None:
        return b""
    return stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()


def split(stdin: bytes) -> bytes:
    """The verb's part of what `call` sends (for fake hosts)."""
    return stdin[len(bundle.build()) :]
