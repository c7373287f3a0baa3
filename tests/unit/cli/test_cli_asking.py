"""`-K` asks once, wherever it stands."""

from __future__ import annotations

import getpass

import pytest

from opsctl.cli.frame import Settings, ended
from opsctl.inventory import typed


def test_before_the_verb_and_after_it_it_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def answered(question: str) -> str:
        questions.append(question)
        return "word"

    monkeypatch.setattr(typed, "_typed", [])
    monkeypatch.setattr(getpass, "getpass", answered)
    for _ in range(2):  # the frame of the root, then the one of the verb
        assert ended(lambda: None, Settings(ask_become_pass=True)) == 0
    assert questions == ["sudo password: "] and typed.given()
