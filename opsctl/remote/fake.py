"""A host that answers from a script: for tests of all that speaks to hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsctl.remote import onhost
from opsctl.remote.host import Answer


@dataclass(frozen=True)
class Call:
    """One call of the ground floor as the host sees it."""

    host: str
    verb: str
    args: tuple[str, ...]
    stdin: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.stdin)


@dataclass
class FakeHost:
    """Obeys remote.host.Host. `verbs` holds a document, an exception or a function for each verb;
    `commands` the Answer for each other command line. `calls` records what was asked."""

    name: str
    verbs: dict[str, Any] = field(default_factory=dict)
    commands: dict[tuple[str, ...], Answer | Exception] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    closed: bool = False

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 60,
        sudo: bool = True,
    ) -> Answer:
        if tuple(argv) in self.commands:
            answer = self.commands[tuple(argv)]
            if isinstance(answer, Exception):
                raise answer
            return answer
        value = self._said(argv, stdin)
        if isinstance(value, Answer):
            return value
        return Answer(_code(value), json.dumps(value))

    def stream(
        self, argv: Sequence[str], *, stdin: bytes = b"", idle: float, sudo: bool = True
    ) -> Iterator[str]:
        for value in self._said(argv, stdin):
            yield json.dumps(value)

    def close(self) -> None:
        self.closed = True

    def said(self, verb: str) -> list[Call]:
        return [call for call in self.calls if call.verb == verb]

    def _said(self, argv: Sequence[str], stdin: bytes) -> Any:
        call = self._call(argv, stdin)
        self.calls.append(call)
        if call.verb not in self.verbs:
            raise AssertionError(f"{self.name}: no answer is written for the verb {call.verb}")
        answer = self.verbs[call.verb]
        if callable(answer):
            answer = answer(call)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _call(self, argv: Sequence[str], stdin: bytes) -> Call:
        before = len(onhost.argv(self, "verb")) - 1
        if list(argv[:before]) != onhost.argv(self, "verb")[:before]:
            raise AssertionError(f"{self.name}: no answer is written for {list(argv)}")
        return Call(self.name, argv[before], tuple(argv[before + 1 :]), onhost.split(stdin))


def _code(value: Any) -> int:
    """The exit code that the ground floor has with such a document."""
    if isinstance(value, dict) and "held" in value:
        return onhost.HELD
    return 1 if isinstance(value, dict) and isinstance(value.get("error"), dict) else 0
