"""What the ground floor's answers become on the controller."""

from __future__ import annotations

import pytest

from opsctl.errors import OpsctlError
from opsctl.remote import onhost
from opsctl.remote.fake import FakeHost
from opsctl.remote.host import Answer


def test_a_document() -> None:
    host = FakeHost("h1", {"collect": {"host": "h1"}})
    assert onhost.call(host, "collect", "--service", "kimi", stdin={"a": 1}) == {"host": "h1"}
    call = host.calls[0]
    assert (call.verb, call.args, call.json) == ("collect", ("--service", "kimi"), {"a": 1})


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (
            Answer(1, '{"error": {"message": "no such release", "hint": "deploy"}}'),
            OpsctlError,
            "no such release",
        ),
        (
            Answer(7, '{"held": {"owner": "eve@ctl", "reason": "raise ratio", "run": "r1"}}'),
            onhost.Held,
            "locked by eve@ctl .*run r1.*raise ratio",
        ),
        (Answer(127, "", "sh: 1: python3: not found\n"), onhost.NoPython, "python3: not found"),
        (Answer(127, "", "bash: line 1: /x/py: No such file"), onhost.NoPython, "No such file"),
        (Answer(1, "", "Traceback\nOSError: disk full\n"), OpsctlError, "OSError: disk full"),
        (Answer(1, "half of {", "MemoryError\n"), OpsctlError, "MemoryError"),
        (Answer(0, "Welcome!\n{}"), OpsctlError, "not a JSON document; it begins: Welcome!"),
        (Answer(0, "[1]"), OpsctlError, "not a JSON document"),
        (Answer(3, ""), OpsctlError, "exit code 3"),
    ],
)
def test_errors(answer: Answer, kind: type[OpsctlError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        onhost.document("h1", "stage", answer)
    assert type(caught.value) is kind
    assert caught.value.host == "h1"


def test_a_verb_that_answers_nothing() -> None:
    assert onhost.document("h1", "unlock", Answer(0, "\n")) == {}


def test_following_ends_with_an_error_line() -> None:
    lines = [{"n": 1}, {"error": {"message": "there is no run r1", "hint": "x"}}]
    host = FakeHost("h1", {"follow": lambda call: iter(lines)})
    events = onhost.follow(host, "follow", "kimi", "r1", idle=5)
    assert next(events) == {"n": 1}
    with pytest.raises(OpsctlError, match="no run r1"):
        next(events)


def test_what_a_host_says_is_harmless() -> None:
    host = FakeHost("h1", {"collect": {"text": "\x1b[2Jx"}})
    assert onhost.call(host, "collect") == {"text": "␛[2Jx"}
