"""Words as a shell, as systemd, as docker and as argparse take them: each beside its own rule."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsctl.engine import catalogue
from opsctl.importing.arguments import walk
from opsctl.importing.marks import marks, plain
from opsctl.importing.shell import Scope, Unreadable, commands, expand
from opsctl.importing.unit import read, words

SHELL = [
    ("a  b\tc", ["a", "b", "c"]),
    ("a \\\n  b", ["a", "b"]),
    ("a\\\nb", ["ab"]),
    ("a # b", ["a"]),
    ("a#b", ["a#b"]),
    ("'a b' \"c d\" e\\ f", ["a b", "c d", "e f"]),
    ('"a\\"b\\$c\\d"', ['a"b$c\\d']),
    ("$'a\\n\\x41\\u00e9'", ["a\nA\u00e9"]),
    ("a'b'\"c\"d", ["abcd"]),
    ("''", [""]),
    ("$X", ["x1", "x2"]),
    ('"$X"', ["x1 x2"]),
    ("a$X.b", ["ax1", "x2.b"]),
    ("${X}", ["x1", "x2"]),
    ("${NO:-d e}", ["d", "e"]),
    ('"${NO:-d e}"', ["d e"]),
    ("${NO-d}", ["d"]),
    ("${X:+y}", ["y"]),
    ("${NO:+y}", []),
    ('"${LIST[@]}"', ["--a", "b c"]),
    ("${LIST[1]}", ["b", "c"]),
    ("$LIST", ["--a"]),
    ('"$@"', []),
    ("--x=$X", ["--x=x1", "x2"]),
    ("~/m", ["/root/m"]),
    ("a\\", ["a"]),
]


@pytest.mark.parametrize(("text", "wanted"), SHELL)
def test_shell_words(text: str, wanted: list[str]) -> None:
    scope = Scope({"X": "x1 x2", "LIST": ["--a", "b c"], "HOME": "/root"})
    (simple,) = commands(f"cmd {text}\n")
    assert [f for word in simple.words[1:] for f in expand(word, scope)] == wanted


UNKNOWN = [
    ("$A", [("variable", "A")]),
    ("${A:?message}", [("required", "A")]),
    ("$1", [("argument", "1")]),
    ("$(cat x)", [("command", "$(cat x)")]),
    ("`cat x`", [("command", "`cat x`")]),
    ("$((1 + 2))", [("arithmetic", "$((1 + 2))")]),
    ("${A%%.*}", [("expansion", "${A%%.*}")]),
    ("{a,b}", [("expansion", "{a,b}")]),
    ("*.json", [("glob", "*.json")]),
    ("<node-rank>", [("placeholder", "<node-rank>")]),
    ("<0|1|2>", [("placeholder", "<0|1|2>")]),
    ("[model_path]", [("placeholder", "[model_path]")]),
    ("~bob/m", [("home", "~bob")]),
]


@pytest.mark.parametrize(("text", "wanted"), UNKNOWN)
def test_what_a_text_does_not_tell_is_marked(text: str, wanted: list[tuple[str, str]]) -> None:
    (simple,) = commands(f"cmd {text}")
    (field,) = [f for word in simple.words[1:] for f in expand(word, Scope())]
    assert marks(field) == wanted
    assert "\0" not in plain(field)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a 'b", "single quote in line 1"),
        ('x\na "b', "double quote in line 2"),
        ("a $(b", "never closed"),
        ("if true; then a; fi", "(if)"),
        ("for i in 1 2; do a; done", "(for)"),
        ("(a)", "subshell"),
        ("f() { a; }", "subshell, a function"),
        ("cat <<EOF\nEOF", "here-document"),
        ("A=(a b", "array in line 1"),
    ],
)
def test_what_only_a_run_decides_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as caught:
        commands(text)
    assert why in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0\r", codec="utf-8")), min_size=1))
def test_whatever_is_quoted_arrives(given_words: list[str]) -> None:
    (simple,) = commands("cmd " + " ".join(map(shlex.quote, given_words)))
    assert [f for word in simple.words[1:] for f in expand(word, Scope())] == given_words


SYSTEMD = [
    ("a  b", ["a", "b"]),
    ("'a b' \"c d\"", ["a b", "c d"]),
    ("a'b c'd", ["ab cd"]),
    (r"a\x20b \u00e9 \101 \s", ["a b", "\u00e9", "A", " "]),
    (r'"a\"b"', ['a"b']),
    ("$$A $B ${B}x x${NO}y $NO", ["$A", "b1", "b2", "b1 b2x", "xy"]),
    ("a$B", ["a$B"]),
    ("%% %n", ["%", "x.service"]),
]


@pytest.mark.parametrize(("text", "wanted"), SYSTEMD)
def test_systemd_words(text: str, wanted: list[str]) -> None:
    split = [words.specifiers(word, {"n": "x.service"}) for word in words.split(f"/bin/x {text}")]
    assert words.expand(split, {"B": "b1 b2"})[1:] == wanted


def test_semicolons() -> None:
    assert words.arguments("/bin/x a ; /bin/y") is None
    assert words.arguments(r"/bin/x ';' \; a;b") == ["/bin/x", ";", ";", "a;b"]


def test_a_quote_that_stays_open_is_no_unit() -> None:
    with pytest.raises(words.Malformed):
        words.split("a 'b")


UNIT = """# a comment
[Service]
ExecStart=/bin/a \\
# within
  --b \\
; and this
  c
Environment=A=1 "B=2 3"
Environment=C=4
"""


def test_a_unit_with_drop_ins() -> None:
    more = "[Service]\nExecStart=\nExecStart=/bin/b\nEnvironment=\nEnvironment=D=5\nUser=x\n"
    last = "[Service]\nUser=y\n"
    one = read.read([("/etc/systemd/system/sglang-a.service", UNIT)])
    assert one.all("ExecStart") == ["/bin/a    --b    c"]
    assert words.assignments(one.all("Environment")[0], {}) == ({"A": "1", "B": "2 3"}, [])
    cat = "\n".join(
        f"# {path}\n{text}"
        for path, text in (
            ("/etc/systemd/system/sglang-a.service", UNIT),
            ("/etc/systemd/system/sglang-a.service.d/10.conf", more),
            ("/etc/systemd/system/sglang-a.service.d/20.conf", last),
            ("/etc/sglang.env", "K=v"),
        )
    )
    whole = read.read([("", cat)])
    assert whole.name == "sglang-a.service"
    assert whole.all("ExecStart") == ["/bin/b"]
    assert whole.all("Environment") == ["D=5"]
    assert whole.last("User") == "y"
    assert whole.files == {"/etc/sglang.env": "K=v\n"}


class _Refuses(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    """argparse with the options of 0.5.9, values as text."""
    parser = _Refuses()
    for flag in catalogue("0.5.9").flags.values():
        names = [f"--{name}" for name in flag.names]
        if flag.kind == "switch":
            parser.add_argument(*names, dest=flag.dest, action="store_true")
        elif flag.kind == "onoff":
            parser.add_argument(*names, dest=flag.dest, action=argparse.BooleanOptionalAction)
        elif flag.kind not in ("void", "refused"):
            nargs = flag.nargs or None
            parser.add_argument(*names, dest=flag.dest, nargs=nargs, const="" if nargs == "?" else
                                None)  # fmt: skip
    return parser


PIECES = st.one_of(
    st.sampled_from(sorted({n for f in catalogue("0.5.9").flags.values() for n in f.names}))
    .flatmap(lambda n: st.integers(2, len(n)).map(lambda end: f"--{n[:end]}"))
    .flatmap(lambda n: st.sampled_from([n, n, f"{n}=8", f"{n}=", f"{n}=-x"])),
    st.sampled_from(["8", "a b", "-1", "-1.5", "-", "-x", "", "x", "--", "-a b", "None", "-h"]),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=6))
def test_arguments_are_walked_as_argparse_walks_them(args: list[str]) -> None:
    void = {f.dest for f in catalogue("0.5.9").flags.values() if f.kind in ("void", "refused")}
    found, strays = walk(catalogue("0.5.9"), args)
    if void & {one.flag.dest for one in found}:
        return
    parser = PARSER
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            values = vars(parser.parse_args(args))
    except (ValueError, SystemExit):
        assert strays, args
        return
    assert not strays, (args, strays)
    for one in found:
        wanted = values[one.flag.dest]
        if one.flag.kind in ("switch", "onoff"):
            continue
        got = list(one.values) if one.flag.many else (one.values[0] if one.values else "")
        last = [other for other in found if other.flag.dest == one.flag.dest][-1]
        if one is last and got != "--":
            assert got == wanted, args


PARSER = _parser()
