"""Noise of a login, sudo's refusal and the command's own words are told apart."""

from __future__ import annotations

import subprocess

import pytest

from opsctl.errors import OpsctlError
from opsctl.remote.start import After, Start

GO, IN, ASK = "opsctl-go-7\n", "opsctl-in-7\n", "opsctl-ask-7:"


def start(*, sudo: bool = True, password: bool = False) -> Start:
    return Start("h1", "ops", sudo="sudo" if sudo else "", password=password, number="7")


def fed(found: Start, out: str = "", err: str = "") -> tuple[str, str]:
    """In the smallest pieces that can come."""
    said = b"".join(found.out(bytes([byte])) for byte in out.encode())
    told = b"".join(found.err(bytes([byte])) for byte in err.encode())
    return said.decode(), told.decode()


def test_only_what_comes_after_the_mark_is_the_commands() -> None:
    noise = 'Welcome!\n{"error": 1}\nopsctl-go-\nno end of line'
    found = start(sudo=False)
    assert fed(found, f"{noise}{GO}out\n", f"bash: warning\n{GO}err\n") == ("out\n", "err\n")
    assert found.refusal(3) is None
    found = start()
    assert fed(found, f"{noise}{GO}out", f"+ sh -c x\n{IN}Lecture\n{GO}err") == ("out", "err")
    assert found.refusal(1) is None and found.words == ""


def test_the_marks_are_what_a_shell_really_writes() -> None:
    for found in (start(sudo=False), Start("h1", "ops", sudo="env", password=False, number="7")):
        argv = [
            word for word in found.argv(["sh", "-c", "cat; echo e >&2; exit 3"]) if word != "-n"
        ]
        done = subprocess.run(argv, input=b"in", capture_output=True)
        assert (found.out(done.stdout), found.err(done.stderr)) == (b"in", b"e\n")
        assert done.returncode == 3 and found.begun


def test_noise_without_end_is_counted_and_not_kept() -> None:
    found = After("mark")
    for _ in range(100):
        assert found.feed(b"x" * 10000) == b""
    assert found.noise == 1_000_000 and len(found.before) == 64 << 10
    assert found.feed(b"mark\nrest") == b"rest"


@pytest.mark.parametrize(
    ("rc", "out", "err", "step", "words", "hint"),
    [
        # The login shell has run nothing: nologin, false, a forced command.
        (1, "This account is currently not available.\n", "", "shell", "not available", "getent"),
        (1, "", "", "shell", "ended with 1 without a word", "usermod -s /bin/sh ops"),
        # sudo, in whatever language; the last line may be the command that it repeats.
        (1, "", f"{IN}sudo: a password is required\n", "sudo", "a password is required", "-K"),
        (1, "", f"{IN}sudo: Ein Passwort ist notwendig\n", "sudo", "Ein Passwort", "NOPASSWD"),
        # A rule in a file that sudo cannot read, or does not trust, is none.
        (1, "", f"{IN}/etc/sudoers.d/ops:1:8: syntax error\nsyntax err ((\n       ^~~\n"
         "sudo: a password is required\n", "sudo",
         "a password is required (and before that: /etc/sudoers.d/ops:1:8: syntax error)",
         "visudo -c"),
        (1, "", f"{IN}>>> /etc/sudoers.d/ops: syntax error near line 1 <<<\n"
         "sudo: parse error in /etc/sudoers.d/ops near line 1\nsudo: a password is required\n",
         "sudo", "/etc/sudoers.d/ops: syntax error near line 1", "visudo -c"),
        (1, "", f"{IN}sudo: /etc/sudoers.d/ops is owned by uid 1000, should be 0\n"
         "sudo: il est n\u00e9cessaire de saisir un mot de passe\n", "sudo",
         "owned by uid 1000", "ops ALL=(root) NOPASSWD: ALL"),
        (1, "", f"{IN}sudo: sorry, you must have a tty to run sudo\n", "sudo", "tty",
         "Defaults:ops !requiretty"),
        (1, "", f"{IN}Sorry, user ops is not allowed to execute '/bin/sh -c x\nimport os\nend'\n",
         "sudo", "ops is not allowed", "ops ALL=(root) NOPASSWD: ALL"),
        (127, "", f"{IN}sh: 1: exec: sudo: not found\n", "sudo", "sudo is not on the host",
         "ansible_user: root"),
    ],
)  # fmt: skip
def test_what_was_not_run(rc: int, out: str, err: str, step: str, words: str, hint: str) -> None:
    found = start()
    assert fed(found, out, err) == ("", "")
    error = found.refusal(rc)
    assert error is not None
    assert (error.step, error.host) == (step, "h1")
    assert words in error.message and hint in error.hint


def test_the_password_is_given_once_and_only_for_sudos_own_question() -> None:
    found = start(password=True)
    fed(found, err=f"motd {ASK}\n{IN}We trust you\n")
    assert not found.asked() and not found.waits()
    fed(found, err=ASK)
    assert found.asked() and not found.asked() and not found.waits()
    fed(found, err=f"\nSorry, try again.\n{ASK}")
    with pytest.raises(OpsctlError, match="refuses ansible_become_password of ops") as caught:
        found.asked()
    assert "once" in caught.value.hint


def test_another_question_is_told() -> None:
    found = start(password=True)
    fed(found, err=f"{IN}Verification code: ")
    assert found.waits() and not found.asked()
    assert "Verification code:" in found.stuck().message
