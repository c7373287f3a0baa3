"""What a host may send, and what reaches the operator's terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.remote import sanitise
from opsctl.remote.bounded import Lines, Tail
from opsctl.remote.host import TooMuch


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"a\r\nb", "a\nb"),
        (b"50%\r100%", "50%␍100%"),
        (b"\x1b[2J\x1b[31mred", "␛[2J␛[31mred"),
        (b"\x1b]0;title\x07", "␛]0;title␇"),
        (b"\xc2\x9b31m", "<U+009B>31m"),
        ("a\u202egnp.exe".encode(), "a<U+202E>gnp.exe"),
        ("a\u2066b\u2069".encode(), "a<U+2066>b<U+2069>"),
        ("zero\u200bwidth".encode(), "zero<U+200B>width"),
        (b"\xff\xfe\x00bin", "��␀bin"),
        (b"\x7f", "␡"),
        ("Größe 5 µs 日本 🙂".encode(), "Größe 5 µs 日本 🙂"),
    ],
)
def test_harmless(sent: bytes, shown: str) -> None:
    assert sanitise.text(sent) == shown


@given(st.binary(max_size=200))
def test_no_control_character_is_ever_left(sent: bytes) -> None:
    shown = sanitise.text(sent)
    assert all(c in "\t\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in shown)
    assert sanitise.text(shown) == shown


def test_long_lines_are_cut() -> None:
    shown = sanitise.text("ab\n" + "x" * 100 + "\ncd", line=10)
    assert shown == "ab\nxxxxxxxxxx… (100 characters)\ncd"


def test_escapes_inside_json_are_found() -> None:
    value = json.loads('{"k\\u001b": ["\\u001b[2J", 5, null, {"x": "\\u202e"}]}')
    assert sanitise.tree(value) == {"k␛": ["␛[2J", 5, None, {"x": "<U+202E>"}]}


def test_lines_out_of_pieces() -> None:
    lines = Lines("h1", ["cat"])
    pieces = [b"on", b"e\r\ntwo\nthr", b"\xc3", b"\xbc\n", b"rest"]
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert [*found, *lines.rest()] == ["one", "two", "thrü", "rest"]


def test_a_line_without_end_is_cut_off() -> None:
    lines = Lines("h1", ["cat", "/dev/zero"])
    with pytest.raises(TooMuch, match=r"cat /dev/zero.*4 MiB in one line") as caught:
        for _ in range(100):
            list(lines.feed(b"x" * (1 << 16)))
    assert caught.value.host == "h1"


def test_the_tail_of_stderr() -> None:
    tail = Tail(5)
    tail.feed(b"abc")
    assert (tail.text(), tail.cut) == ("abc", False)
    tail.feed(b"defg")
    assert (tail.text(), tail.cut) == ("cdefg", True)
