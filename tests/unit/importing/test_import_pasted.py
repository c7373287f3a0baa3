"""Texts as they come from pages, terminals and people's scripts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.importing.test_import_texts import PYTHON, notes, refusals, service, take

RUN = "python -m sglang.launch_server --model-path /m"
PLAIN: dict[str, Any] = {"model": {"path": "/m"}, "engine": {"version": "0.5.9"},
                         "host": "127.0.0.1", "port": 30000}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        f"# start it\n$ {RUN}",
        f"\n# one\n# two\n\n$ {RUN}\n",
        f"u@h:~$ # start it\nu@h:~$ {RUN}",
        f"export\n$ {RUN}",
        f"mkdir -p /x\nu@h:~$ {RUN}",
        f"echo start && \\\n$ {RUN}",
        f"# {RUN}",  # a root's prompt
        "# python -m sglang.launch_server \\\n  --model-path /m",
        f"```bash\n# here\n$ {RUN}\n```",
        f"\u200b{RUN}",
        f"exec > >(tee /var/log/x.log) 2>&1\n{RUN}",
        f"{RUN} > >(tee a.log) 2> >(tee b.log >&2)",
        f"systemd-run --unit sgl {RUN}",
    ],
)
def test_what_comes_along_is_taken_away(text: str) -> None:
    assert service(text) == PLAIN


def test_what_only_looks_like_a_prompt_is_a_value() -> None:
    assert service(f"mkdir /x\n{RUN} --revision 'a\n$ b'")["flags"] == {"revision": "a\n$ b"}


def test_prose_before_a_prompt_is_named() -> None:
    assert "also runs Start (line 1)" in refusals(f"Start it so:\n$ {RUN}")


def test_a_comment_beside_a_command_is_none() -> None:
    text = f"# python -m sglang.launch_server --model-path /other\n{RUN}"
    assert service(text) == PLAIN
    assert "holds no command" in refusals("# one\n# two")


MENDED = [
    ("\u2014tp-size 8", {"tp-size": 8}),
    ("\u2013tp-size 8", {"tp-size": 8}),
    ("-\u2013tp-size 8", {"tp-size": 8}),
    ("\u2011\u2011tp-size 8", {"tp-size": 8}),
    ("--revision \u201ca b\u201d", {"revision": "a b"}),
    ("--revision \u2018a b\u2019", {"revision": "a b"}),
    ("--json-model-override-args \u2018{\u201ca\u201d: 1}\u2019",
     {"json-model-override-args": {"a": 1}}),
]  # fmt: skip
LEFT = [
    ("--revision 'a \u201cb\u201d \u2013c'", {"revision": "a \u201cb\u201d \u2013c"}),
    ("--revision it\u2019s", {"revision": "it\u2019s"}),
    ("--revision a\u2013b", {"revision": "a\u2013b"}),
    ("--tp-size 8 # it\u2019s \u201cfine\u201d", {"tp-size": 8}),
]


@pytest.mark.parametrize(("args", "flags"), [*MENDED, *LEFT])
def test_quotes_and_dashes_of_a_typesetter(args: str, flags: dict[str, Any]) -> None:
    found = take(f"{PYTHON} {args}")
    assert found.service is not None, [str(p) for p in found.problems]
    assert found.service["flags"] == flags
    told = any("typographic signs" in what for what in notes(found, "changed"))
    assert told == ((args, flags) in MENDED)


def test_a_dash_within_the_quotes_of_a_script_is_told() -> None:
    assert "a page made this dash of two" in refusals(f'bash -c "{PYTHON} \u2014tp 8"')
    assert service(f"pm2 start {PYTHON.split()[0]} \u2014 -m {PYTHON.partition('-m ')[2]}")


def test_a_file_that_another_command_prints_is_none() -> None:
    said = refusals(f"{PYTHON} --chat-template <(cat x)")
    assert "<(cat x) is what another command prints" in said


def test_a_transient_unit() -> None:
    found = take(
        "sudo systemd-run --unit=sgl -p User=llm -p LimitMEMLOCK=infinity -p MemoryMax=400G "
        f"-E A=1 --working-directory=/srv/w {PYTHON} --chat-template t.jinja"
    )
    assert found.service is not None
    assert found.service["env"] == {"A": "1"} and found.service["user"] == "llm"
    assert found.service["flags"] == {"chat-template": "/srv/w/t.jinja"}
    assert "LimitMEMLOCK=infinity" in notes(found, "carried")
    assert "MemoryMax=400G" in notes(found, "lost")
    assert "systemd-run, unit sgl" in notes(found, "dropped")


@pytest.mark.parametrize("start", ["env -C /srv/w", "env --chdir=/srv/w A=1", "sudo -D /srv/w",
                                   "cd /srv && env -C w"])  # fmt: skip
def test_a_folder_that_a_wrapper_changes_to(start: str) -> None:
    found = service(f"{start} {PYTHON} --chat-template t.jinja")
    assert found["flags"] == {"chat-template": "/srv/w/t.jinja"}


@pytest.mark.parametrize("where", ["$(pwd)", "`pwd`", "$PWD", "${PWD}"])
def test_where_the_shell_is(where: str) -> None:
    text = f"{PYTHON} --chat-template {where}/t.jinja"
    assert service(text, cwd="/srv")["flags"] == {"chat-template": "/srv/t.jinja"}
    assert service(f"cd /x; {text}")["flags"] == {"chat-template": "/x/t.jinja"}
    refusals(text)


def test_two_engines_of_one_script() -> None:
    said = refusals(f"{PYTHON} --port 1 &\n{PYTHON} --port 2 &\nwait")
    assert "starts 2 engines" in said and "import each command by itself" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [(f"ssh h1 '{PYTHON}'", "a command on another host: import that command alone"),
     (f"kubectl exec pod -- {PYTHON}", "import the container's own command alone")],
)  # fmt: skip
def test_a_command_that_runs_elsewhere(text: str, said: str) -> None:
    assert said in refusals(text)
