"""Quoting against a small decoder of systemd's rules, written from its manual pages alone.

tests/lab/test_unit_real.py holds the same values against systemd itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.release import quoting

ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "s": 32}
SPECIFIERS = {"%": "%"}  # any other %x would be expanded: our text may hold none


def words(text: str, *, c_escapes: bool) -> list[str]:
    """systemd.syntax(7): words apart by blanks, quotes, C escapes (or just \\x → x)."""
    found: list[bytes] = []
    i, quote, word = 0, "", None
    while i < len(text):
        char = text[i]
        i += 1
        if char == "\\":
            assert i < len(text), "a backslash at the end of a line would continue it"
            word = word or b""
            if not c_escapes:
                word += text[i].encode()
                i += 1
                continue
            kind = text[i]
            size = {"x": 2, "u": 4, "U": 8}.get(kind)
            if size:
                code = int(text[i + 1 : i + 1 + size], 16)
                assert code, "systemd refuses \\x00"
                word += bytes([code]) if kind == "x" else chr(code).encode()
                i += 1 + size
            else:
                literal = {"\\": 92, '"': 34, "'": 39, **ESCAPES}
                word += bytes([literal[kind]])
                i += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or b"") + char.encode()
        elif char in "\"'":
            quote, word = char, word or b""
        elif char in " \t\n\r":
            if word is not None:
                found.append(word)
            word = None
        else:
            word = (word or b"") + char.encode()
    assert not quote, "an open quote"
    if word is not None:
        found.append(word)
    return [w.decode() for w in found]


def specifiers(text: str) -> str:
    out, i = "", 0
    while i < len(text):
        if text[i] == "%":
            out += SPECIFIERS[text[i + 1]]
            i += 1
        else:
            out += text[i]
        i += 1
    return out


def variables(text: str) -> str:
    """systemd.service(5): $$ is a dollar; any other $ could be expanded."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


HARD = st.sampled_from(list("\"'\\$%;#-@+!:|&()<>*?~`{}[]=, \t\n\r\v\f\x01\x1b\x7f\x85"))
TEXT = st.text(st.one_of(HARD, st.characters(codec="utf-8")), max_size=60)
NAMED = json.loads((Path(__file__).parents[1] / "unit" / "release" / "hostile.json").read_text())


def as_argv(text: str) -> list[str]:
    assert "\n" not in text and text.isascii()
    return [variables(specifiers(w)) for w in words(text, c_escapes=True)]


@given(st.lists(TEXT, max_size=6))
def test_arguments_arrive_exactly(values: list[str]) -> None:
    quotable = [v for v in values if "\0" not in v]
    assert as_argv(" ".join(map(quoting.argument, quotable))) == quotable


@pytest.mark.parametrize("value", NAMED)
def test_named_arguments_arrive_exactly(value: str) -> None:
    text = quoting.argument(value)
    assert as_argv(text) == [value]
    assert not text.startswith((";", "#")), "systemd would take it for a separator or a remark"


@given(TEXT.filter(lambda t: "\0" not in t))
def test_variables_arrive_exactly(value: str) -> None:
    text = quoting.environment("NAME", value)
    assert "\n" not in text and text.isascii()
    assert [specifiers(w) for w in words(text, c_escapes=True)] == [f"NAME={value}"]


@given(st.lists(TEXT.map(lambda t: f"/srv/{t.replace('/', '_')}x"), min_size=1, max_size=3))
def test_paths_arrive_exactly_or_are_refused(values: list[str]) -> None:
    quoted, kept = [], []
    for value in values:
        try:
            quoted.append(quoting.path(value))
        except quoting.Unquotable:
            assert any(c < " " or c == "\x7f" for c in value) or len(value.encode()) > 200
            continue
        kept.append(value)
    text = " ".join(quoted)
    assert "\n" not in text
    assert [specifiers(w) for w in words(text, c_escapes=False)] == kept


@given(TEXT)
def test_a_description_arrives_exactly_or_is_refused(value: str) -> None:
    try:
        text = quoting.text(value)
    except quoting.Unquotable:
        return
    assert specifiers(text) == value
    assert text == text.strip() and not text.endswith("\\") and "\n" not in text


@pytest.mark.parametrize(
    ("quoted", "values", "why"),
    [
        (quoting.argument, ["a\0b"], "NUL"),
        (quoting.argument, ["a\ud800b"], "surrogate"),
        (quoting.argument, ["x" * (128 << 10)], "bytes long"),
        (quoting.environment, ["A", "a\0b"], "NUL"),
        (quoting.environment, ["A", "\udcff"], "surrogate"),
        (quoting.environment, ["A-B", "x"], "name"),
        (quoting.environment, ["\u0410", "x"], "name"),
        (quoting.environment, ["", "x"], "name"),
        (quoting.path, ["srv/x"], "absolute"),
        (quoting.path, [""], "absolute"),
        (quoting.path, ["/srv/../etc"], r"\.\."),
        (quoting.path, ["/srv/a\nb"], "U\\+000A"),
        (quoting.path, ["/srv/" + "x" * 256], "255"),
        (quoting.path, ["/x" * 2048], "bytes long"),
        (quoting.executable, ["/opt/$x/python"], r"\$"),
        (quoting.user, ["sglang\nUser=root"], "user"),
        (quoting.user, ["%u"], "user"),
        (quoting.user, ["sgl\u0430ng"], "user"),
        (quoting.user, [""], "user"),
        (quoting.credential, ["a:b", "/x"], "credential"),
        (quoting.credential, ["..", "/x"], "credential"),
        (quoting.credential, ["a", "/x y"], "credential"),
        (quoting.credential, ["a", "/x%n"], "credential"),
        (quoting.text, ["a\\"], "backslash"),
        (quoting.text, ["a\nExecStart=/bin/sh"], "U\\+000A"),
        (quoting.text, [" a"], "blank"),
        (quoting.whole, ["[Unit]\nA=" + "x \\\n" * 400_000], "1 MiB"),
    ],
)
def test_what_no_unit_can_carry_is_refused_with_the_reason(
    quoted: object, values: list[str], why: str
) -> None:
    assert callable(quoted)
    with pytest.raises(quoting.Unquotable, match=why):
        quoted(*values)
