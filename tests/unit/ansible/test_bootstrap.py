"""When Python is installed on a host that has none, and what is said when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from opsctl.ansible import bootstrap
from opsctl.errors import OpsctlError
from opsctl.remote.host import Answer
from opsctl.remote.onhost import NoPython, no_python


class Host:
    """Answers with `answer` to whatever is run."""

    name = "h1"

    def __init__(self, python: str = "", answer: Answer = Answer(0, "")) -> None:  # noqa: B008
        self.target = type("Target", (), {"python": python})()
        self.answer, self.ran = answer, 0

    def run(self, argv: Any, **_: Any) -> Answer:
        self.ran += 1
        return self.answer


def missing(rc: int = 127, last: str = "sh: 1: exec: python3: not found") -> NoPython:
    found = no_python("h1", "survey", rc, last)
    assert found is not None
    return found


def test_it_is_installed_where_that_is_allowed() -> None:
    bootstrap.may_install(Host(), missing(), allowed=True, check=False)


@pytest.mark.parametrize(
    ("python", "last", "allowed", "check", "hint"),
    [
        ("", "", False, False, "host_install_python: true"),
        ("", "", True, True, "a run without --check installs python3"),
        # Another Python beside the one that the operator has named is not what is wanted.
        ("/opt/py/bin/python3", "", True, False, "set ansible_python_interpreter"),
        ("", "opsctl-old-python 3.6.8 /usr/bin/python3", True, False, "newer python3"),
    ],
)
def test_it_is_not_installed(python: str, last: str, allowed: bool, check: bool, hint: str) -> None:
    error = missing(1, last) if last else missing()
    with pytest.raises(NoPython) as caught:
        bootstrap.may_install(Host(python), error, allowed=allowed, check=check)
    assert hint in caught.value.hint and caught.value.old == bool(last)


def test_the_package_managers_own_words() -> None:
    said = "Reading lists\nE: Unable to locate package python3\nE: Sub-process failed\n"
    with pytest.raises(OpsctlError, match="could not be installed: E: Sub-process") as caught:
        bootstrap.install(Host(answer=Answer(100, said)))
    assert "E: Unable to locate package python3" in caught.value.log
    bootstrap.install(Host())


def test_what_is_no_matter_of_python() -> None:
    assert no_python("h1", "x", 1, "OSError: disk full") is None
    old = no_python("h1", "x", 1, "opsctl-old-python 2.7.5 /usr/bin/python")
    assert old is not None and "/usr/bin/python is Python 2.7.5" in old.message


@pytest.mark.parametrize(
    "last",
    [
        "sh: 1: exec: /opt/py/bin/python3.99: not found",
        "bash: line 1: /opt/py/bin/python3.99: No such file or directory",
    ],
)
def test_an_interpreter_that_is_named_and_not_there_is_told_first(last: str) -> None:
    assert missing(127, last).hint.startswith(
        "ansible_python_interpreter names /opt/py/bin/python3.99, which is not there"
    )
    assert "ansible_python_interpreter names" not in missing().hint
